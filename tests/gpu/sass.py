#!/usr/bin/env python3
"""Reads the SASS of the CUDA kernels: no GPU is needed.

  sass.py check [FOLDER]                compares kernels with kernels/cuda/sass_table.txt
  sass.py model PROGRAM [FOLDER]        sums what a step moves, of the text of
                                        `weft show PLAN program 0`, and estimates its time
  sass.py products PROGRAM [FOLDER]     which products of a step are on tensor cores

SASS_TABLE names another table. The kernels are those of $WEFT_CUDA_MODULE (weft_cuda.so) where that has SASS for 9.0; else the
sources are compiled with nvcc into FOLDER, once for each content. Exit code 77: nvcc or a
disassembler (cuobjdump, which Python's package triton has, too) is not there.
"""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CUDA = os.path.join(ROOT, "kernels", "cuda")
ARCH = "sm_90"
OWN = "sm_90a"  # of instructions that no other architecture has
RESERVED = 1024  # bytes of shared memory of a block that 9.0 takes, in cuobjdump's figure


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True).stdout


# ---- tools ----

def disassembler():
    named = os.environ.get("CUOBJDUMP")
    places = [named, shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump"]
    for folder in sys.path + glob.glob("/usr/lib/python3*/*-packages"):
        places.append(os.path.join(folder, "triton/backends/nvidia/bin/cuobjdump"))
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    skip("cuobjdump is not there: it comes with the CUDA toolkit, and with Python's triton; "
         "CUOBJDUMP names it")


def compiler():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        skip("nvcc is not there, and weft_cuda.so has no SASS for 9.0")
    return nvcc


# ---- the table ----

class Row:
    def __init__(self, line):
        source, kernel, registers, shared, loads, ops = [x.strip() for x in line.split("|")]
        self.source, self.kernel, self.loads = source, kernel, loads
        self.registers, self.shared, self.ops = int(registers), int(shared), ops.split()


def table():
    path = os.environ.get("SASS_TABLE") or os.path.join(CUDA, "sass_table.txt")
    with open(path) as f:
        return [Row(line) for line in f if line.strip() and not line.startswith("#")]


# ---- kernels ----

class Kernel:
    def __init__(self, name):
        self.name, self.lines = name, []
        self.registers = self.stack = self.shared = 0

    def count(self, pattern):
        return sum(1 for _, text in self.lines if re.search(pattern, text))


def figures_of(dump, path, arch):
    """Registers, stack and shared memory of all kernels of a cubin or module, which need no
    disassembly, by mangled name."""
    kernels, now = {}, None
    for line in output(dump, *arch, "-res-usage", path).splitlines():
        m = re.match(r"\s*Function (\S+?):", line)
        if m:
            now = kernels.setdefault(m.group(1), Kernel(m.group(1)))
        m = re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", line)
        if m and now:
            now.registers, now.stack = int(m.group(1)), int(m.group(2))
            now.shared = max(int(m.group(3)) - RESERVED, 0)
    names = subprocess.run(["c++filt"], input="\n".join(kernels), text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    for plain, k in zip(names, kernels.values()):
        k.name = re.sub(r"^void ", "", plain)
    return kernels


def read_kernels(dump, path, rows, arch=()):
    """The kernels of the rows by demangled name, and all others without their lines."""
    kernels = figures_of(dump, path, arch)
    named = {k.name: k for k in kernels.values()}
    wanted = {id(kernel_of(row, named)) for row in rows}
    mangled = [name for name, k in kernels.items() if id(k) in wanted]
    if not mangled:
        return named
    now = None
    for line in output(dump, *arch, "-sass", "-fun", ",".join(mangled), path).splitlines():
        m = re.match(r"\s*Function : (\S+)", line)
        if m:
            now = kernels[m.group(1)]
        m = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
        if m and now:
            now.lines.append((int(m.group(1), 16), m.group(2).strip()))
    return named


def digest(source):
    """Of a source and of all headers that kernels may see."""
    h = hashlib.sha256()
    headers = glob.glob(CUDA + "/**/*.cuh", recursive=True) + [CUDA + "/port.h"]
    for path in [os.path.join(CUDA, source)] + sorted(headers):
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:16]


def all_kernels(folder, rows):
    dump = disassembler()
    if not shutil.which("c++filt"):
        skip("c++filt is not there (Debian: binutils)")
    module = os.environ.get("WEFT_CUDA_MODULE")
    images = output(dump, "-lelf", module) if module and os.path.exists(module) else ""
    if re.search(r"\b%s\b" % ARCH, images):
        kernels = read_kernels(dump, module, rows, ("-arch", ARCH))
        if OWN in images:
            kernels.update(read_kernels(dump, module, rows, ("-arch", OWN)))
        return kernels
    nvcc, kernels = compiler(), {}
    os.makedirs(folder, exist_ok=True)
    for source in sorted({r.source for r in rows}):
        to = os.path.join(folder, "%s-%s.cubin" % (source.replace("/", "_"), digest(source)))
        if not os.path.exists(to):
            arch = OWN if source.endswith("_hopper.cu") else ARCH
            output(nvcc, "-arch=" + arch, "-std=c++17", "-I" + ROOT, "-cubin",
                   os.path.join(CUDA, source), "-o", to + ".new")
            os.rename(to + ".new", to)
        kernels.update(read_kernels(dump, to, rows))
    return kernels


def kernel_of(row, kernels):
    found = [k for name, k in sorted(kernels.items()) if name.startswith(row.kernel)]
    return found[0] if found else None


# ---- products of a warpgroup ----

def registers(text):
    return {int(r) for r in re.findall(r"\bR(\d+)\b", text)}


def written(text):
    """The registers that an instruction may write: four from its first register on."""
    m = re.match(r"(?:@!?U?P\d+ )?(?!ST|RED|BRA|CALL|HGMMA)\S+ (?:U?P\w+, )*R(\d+)\b", text)
    return {int(m.group(1)) + i for i in range(4 if ".128" in text else 2 if re.search(
        r"\.64\b|\.WIDE\b", text) else 1)} if m else set()


def touched_early(k):
    """Instructions that touch what products in flight add to, or write what they read, in the
    order of the text: a loop waits for all at its end."""
    groups, now, found = [], [set(), set()], 0
    for _, text in k.lines:
        m = re.match(r"HGMMA\.64x(\d+)x16\.F32\S* R(\d+), (?:R(\d+), )?", text)
        if m:
            now[0] |= {int(m.group(2)) + i for i in range(int(m.group(1)) // 2)}
            now[1] |= {int(m.group(3)) + i for i in range(4)} if m.group(3) else set()
            if "gsb0" in text:
                groups, now = groups + [now], [set(), set()]
            continue
        m = re.match(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\w+)", text)
        if m:
            groups = groups[max(len(groups) - int(m.group(1), 16), 0):]
            continue
        sums, read = (set().union(*(g[i] for g in groups + [now])) for i in (0, 1))
        found += bool(registers(text) & sums or written(text) & read)
    return found + len(groups)


# ---- check ----

NARROW = r"\bLDG\.E(\.\w+)*\.[US](8|16)\b"
WIDE = r"\bLDG\.E(\.\w+)*\.128\b"


def faults(row, k):
    if not k:
        return ["there is no such kernel"]
    found = []
    if k.registers > row.registers:
        found.append("%d registers, at most %d" % (k.registers, row.registers))
    if k.shared > row.shared:
        found.append("%d bytes of shared memory, at most %d" % (k.shared, row.shared))
    if k.stack or k.count(r"\b(LDL|STL)\b"):
        found.append("spills (%d bytes of stack)" % k.stack)
    if row.loads in ("wide", "mma") and k.count(NARROW):
        found.append("%d loads of one or two bytes" % k.count(NARROW))
    if row.loads == "wide" and not k.count(WIDE):
        found.append("no load of sixteen bytes")
    if row.loads in ("mma", "mma2") and not k.count(r"\bHMMA\.16816\.F32\.BF16\b"):
        found.append("no tensor cores")
    products = k.count(r"\bHGMMA\.64x(64|128)x16\.F32\.BF16\b")
    if row.loads == "wgmma" and not products:
        found.append("no products of a warpgroup")
    if row.loads == "wgmma" and 2 * k.count(r"\bWARPGROUP\.DEPBAR\b") > products:
        found.append("products that wait for each other")
    if row.loads == "wgmma" and touched_early(k):
        found.append("%d instructions that touch registers of products in flight" %
                     touched_early(k))
    if row.loads in ("mma", "wgmma") and not k.count(r"\bLDGSTS\.E(\.\w+)*\.128\b"):
        found.append("no asynchronous copies of sixteen bytes")
    if row.loads not in ("wide", "row", "mma", "mma2", "wgmma"):
        found.append("the table has no such kind of loads: " + row.loads)
    return found


def check(folder):
    rows, bad = table(), 0
    kernels = all_kernels(folder, rows)
    for row in rows:
        for fault in faults(row, kernel_of(row, kernels)):
            print("%s: %s: %s" % (row.source, row.kernel, fault))
            bad += 1
    print("%d kernels of the table, %d faults" % (len(rows), bad))
    return 1 if bad else 0


# ---- a step ----

def step_ops(path):
    """(op, operands, results) of each kernel of a step, calls of bodies followed."""
    main, bodies, into = [], {}, None
    with open(path) as f:
        for line in f:
            m = re.match(r"body (\d+):", line)
            if m:
                into = bodies.setdefault(int(m.group(1)), [])
            elif line.startswith("kernels"):
                break
            m = re.match(r"\s+\d+\s+CALL\s+body (\d+)", line)
            if m:
                main.append(int(m.group(1)))
            m = re.match(r"\s+\d+\s+KERNEL (\w+)(.*)", line)
            if m:
                (main if into is None else into).append((m.group(1), m.group(2)))
    ops = []
    for x in main:
        ops += bodies[x] if isinstance(x, int) else [x]
    return [parse_op(op, rest) for op, rest in ops]


def parse_op(op, rest):
    sides = re.split(r" using | [a-z_0-9]+=| accumulate|\"", rest)[0].split("->")
    sizes = {"bf16": 2, "f32": 4, "i32": 4, "f64": 8, "u8": 1}

    def tensors(text):
        found = []
        for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
            n = 1
            for d in dims.split(","):
                n *= int(d or 1)
            found.append((kind, n, n * sizes[kind], [int(d) for d in dims.split(",") if d]))
        return found
    return op, tensors(sides[0]), tensors(sides[1]), rest


def moved(op, ins, outs, rest):
    """Bytes that an op has to read and write."""
    read, write = sum(t[2] for t in ins), sum(t[2] for t in outs)
    if op == "embedding":
        read = ins[0][2] + outs[0][2]
    if op == "embedding_dw":  # clears the table, adds to the rows of the tokens
        write += 2 * ins[1][1] * 4
    return read + write


PRODUCTS = re.compile(r"(grouped_)?linear(_dx|_dw)?$|router_logits|attention")

# ---- the estimate ----

SMS, CLOCK, RATE, LATENCY = 132, 1.7e9, 4.6e12, 800e-9  # of an H200
ISSUE = 4 * 0.6  # instructions that a multiprocessor issues a cycle, of four


def bytes_of(text):
    """What one thread moves by a load or store: LDG.E.128 16, LDG.E.U16 2, LDG.E 4."""
    opcode = re.search(r"\b(?:LDG|STG)\S*", text).group(0)
    m = re.search(r"\.[US]?(8|16|64|128)\b", opcode)
    return int(m.group(1)) // 8 if m else 4


def hot_lines(k):
    """The instructions of the loop that loads most, or of the whole kernel, and what a thread
    moves by them. Of loops that load the same the shortest, the innermost one."""
    def sizes(lines, opcode):
        return sum(bytes_of(t) for _, t in lines if re.search(r"\b(%s)\b" % opcode, t))
    best = k.lines
    loops = []
    for at, text in k.lines:
        m = re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", text)
        if m and int(m.group(1), 16) < at:
            loops.append([x for x in k.lines if int(m.group(1), 16) <= x[0] <= at])
    loops = [x for x in loops if sizes(x, "LDG") >= 16]
    if loops:
        best = max(loops, key=lambda x: (sizes(x, "LDG"), -len(x)))
    return best, sizes(best, "LDG|STG")


def in_flight(lines):
    """Bytes that a thread has asked for before it first needs one of them."""
    most = now = 0
    waits = set()
    for _, text in lines:
        m = re.search(r"\bLDG\.E\S* R(\d+),", text)
        if m:
            now += bytes_of(text)
            waits |= {int(m.group(1)) + i for i in range(max(bytes_of(text) // 4, 1))}
            most = max(most, now)
            continue
        body = text.split(" ", 1)[1] if " " in text else ""
        used = {int(r) for r in re.findall(r"\bR(\d+)\b", body)}
        if used & waits:
            now, waits = 0, set()
    return most


def threads_of(k, block=256):
    by_registers = 65536 // (max((k.registers + 7) // 8 * 8, 24) * block)
    return block * max(1, min(2048 // block, by_registers))


# Blocks of kernels whose grid does not grow with the operands (kernels/cuda/cuda.h): for
# 8192 rows, and of a norm.
BLOCKS = {"rmsnorm_back": 128, "sqnorm": 256}


def seconds(k, op, moves):
    """The largest of: memory at its rate, latency with what is in flight, instructions."""
    lines, vectors = hot_lines(k)
    threads = min(SMS * threads_of(k), BLOCKS.get(op, 1 << 30) * 256)
    flight = threads * max(in_flight(lines), 4) / LATENCY
    issue = moves / max(vectors, 4) / 32 * len(lines) / (SMS * ISSUE * CLOCK)
    return max(moves / RATE, moves / flight, issue)


def model(program, folder):
    rows = {op: r for r in table() for op in r.ops}
    kernels = all_kernels(folder, table())
    groups, other = {}, 0
    for op, ins, outs, rest in step_ops(program):
        if PRODUCTS.match(op):
            continue
        n = moved(op, ins, outs, rest)
        if op not in rows:
            other += n
            continue
        k = kernel_of(rows[op], kernels)
        if not k:
            print("there is no kernel " + rows[op].kernel)
            return 1
        g = groups.setdefault(op, [0, 0, 0.0, k])
        g[0], g[1], g[2] = g[0] + 1, g[1] + n, g[2] + seconds(k, op, n)
    total, time = other, other / RATE
    print("%-14s %5s %8s %9s %9s %6s %5s %9s" %
          ("op", "times", "GB", "ideal ms", "model ms", "ratio", "regs", "in flight"))
    for op, (times, n, s, k) in sorted(groups.items(), key=lambda x: -x[1][1]):
        total, time = total + n, time + s
        print("%-14s %5d %8.2f %9.3f %9.3f %6.2f %5d %6d KB" %
              (op, times, n / 1e9, n / RATE * 1e3, s * 1e3, s * RATE / n, k.registers,
               threads_of(k) * in_flight(hot_lines(k)[0]) // 1024))
    ratio = time * RATE / total
    print("%.1f GB (%.3f of ops without a row), ideal %.2f ms, model %.2f ms, ratio %.3f" %
          (total / 1e9, other / 1e9, total / RATE * 1e3, time * 1e3, ratio))
    return 0 if ratio <= 1.2 and other < 0.01 * total else 1


def products(program, folder):
    """Each product of a step: the kernel that makes it, and its share of the flops."""
    rows = {op: r for r in table() for op in r.ops}
    kernels = all_kernels(folder, table())
    bad, seen = 0, set()
    for op, ins, outs, rest in step_ops(program):
        if not PRODUCTS.match(op):
            continue
        shape = (op, str([t[3] for t in ins + outs]))
        if shape in seen:
            continue
        seen.add(shape)
        if op in rows:
            k = kernel_of(rows[op], kernels)
            how = "%s, %d HMMA" % (rows[op].kernel, k.count(r"\bHMMA\b")) if k else None
        elif any(t[0] != "bf16" for t in ins if len(t[3]) > 1 and op.startswith("linear")):
            how = None
        else:  # cuBLASLt, or attention of attention/, which is mma.sync in bf16
            how = "attention" if op.startswith("att") else "cuBLASLt"
        wide = all(t[3][-1] % 8 == 0 for t in ins + outs if len(t[3]) > 1 and t[0] == "bf16")
        if not how or not wide:
            bad += 1
        print("%-18s %s -> %s" % (op, ", ".join(str(t[3]) for t in ins + outs),
                                  how or "NOT on tensor cores"))
    print("%d shapes of products, %d not on tensor cores" % (len(seen), bad))
    return 1 if bad or not seen else 0


def main(args):
    if not args or args[0] not in ("check", "model", "products"):
        print(__doc__)
        return 2
    files = args[1:] if args[0] != "check" else [None] + args[1:]
    folder = files[1] if len(files) > 1 else os.path.join(ROOT, "build", "sass")
    if args[0] == "check":
        return check(folder)
    return (model if args[0] == "model" else products)(files[0], folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
