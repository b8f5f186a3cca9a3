-- machine.lua - --help of verbs that measure this machine.
return {
  calibrate = [[
Compiles the plans, runs each of their distinct kernels and collectives several times on
virtual ranks of this machine, and writes the times to calibration.lua, or another FILE: for
weft sim --calibration FILE. A file that is there already keeps its rows, so that a
calibration that was ended goes on; it is written whole or not at all, also on Ctrl-C. It has
to be of this machine.

  -o, --output FILE  where to
  --procs N          measure transfers between N processes of this machine, as weft run
                     --procs has them; mpirun and other launchers do the same. Kernels are
                     those of rank 0, as many at once as there are cores for
  --comm NAME        what connects them, as in weft run; a file is of one way
  --threads N        threads of each rank; default: the machine's share for the plan that
                     has most ranks, or for the processes
  --device NAME      cpu or cuda; default: cpu
  -q, --quiet        no progress
]],

  doctor = [[
Prints the CPU and which kernels it gets, the libraries that were found and their
versions, the rate of matrix products in f32 and bf16 (about a second), and what is
missing with the Debian package to install.

  --calibration FILE say how what weft calibrate has written has aged: what is another
                     on this machine than then, and its rates measured again (a second)
  --json             print one object
]],
}
