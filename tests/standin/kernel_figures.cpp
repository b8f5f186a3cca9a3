/* kernel_figures.cpp - refuses launches that a GPU would refuse, by what ptxas said of
 * each kernel when weft_cuda.so was built: its own shared memory and registers, by
 * mangled name. An address in this process has a name by the symbol table of the file
 * that it comes from. Where the module was not built nothing is known of a kernel but
 * what the launch asks for. */
#include "kernel_figures.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "emulate.h"
#include "runtime.h"

namespace {

enum { ALWAYS = 48 << 10, THREADS = 1024, REGISTERS = 65536, LANES = 32 };

/* ---- what ptxas said ---- */

typedef std::map<std::pair<std::string, int>, KernelFigures> Figures;

std::string quoted(const std::string &line, size_t nth) {
  size_t at = 0;
  for (size_t i = 0; i < 2 * nth; i++) at = line.find('\'', at) + 1;
  at = line.find('\'', at);
  return line.substr(at + 1, line.find('\'', at + 1) - at - 1);
}

/* The number before a word, or 0. */
int before(const std::string &line, const char *word) {
  size_t at = line.find(word);
  if (at == std::string::npos) return 0;
  size_t from = line.find_last_not_of("0123456789", at - 1);
  return atoi(line.c_str() + from + 1);
}

const Figures &figures() {
  static const Figures *all = [] {
    Figures *f = new Figures;
    std::ifstream in(WEFT_KERNEL_FIGURES);
    std::string line;
    std::pair<std::string, int> now;
    while (std::getline(in, line)) {
      if (line.find("Compiling entry function") != std::string::npos)
        now = {quoted(line, 0), atoi(quoted(line, 1).c_str() + 3)};
      if (line.find("Used ") != std::string::npos && !now.first.empty())
        (*f)[now] = {(size_t)before(line, " bytes smem"), before(line, " registers")};
    }
    return f;
  }();
  return *all;
}

/* ---- names of addresses ---- */

/* A file, mapped: one of the sanitizers' has hundreds of megabytes, of which each process
 * asks for a few names. */
struct Mapped {
  const char *data;
  size_t size;
};

Mapped map_file(const char *path) {
  struct stat is;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  void *p = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &is) == 0 && is.st_size > (off_t)sizeof(Elf64_Ehdr))
    p = mmap(nullptr, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0) close(fd);
  if (p == MAP_FAILED) return {nullptr, 0};
  return {(const char *)p, (size_t)is.st_size};
}

/* The function so many bytes behind the base of a file of 64 bits; "": there is none. */
std::string symbol_at(const Mapped &file, uintptr_t place) {
  if (!file.data || memcmp(file.data, ELFMAG, SELFMAG)) return "";
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)file.data;
  const Elf64_Shdr *part = (const Elf64_Shdr *)(file.data + head->e_shoff);
  for (int i = 0; i < head->e_shnum; i++) {
    if (part[i].sh_type != SHT_SYMTAB) continue;
    const char *text = file.data + part[part[i].sh_link].sh_offset;
    const Elf64_Sym *s = (const Elf64_Sym *)(file.data + part[i].sh_offset);
    for (size_t k = 0; k < part[i].sh_size / sizeof *s; k++)
      if (s[k].st_value == place && ELF64_ST_TYPE(s[k].st_info) == STT_FUNC)
        return text + s[k].st_name;
  }
  return "";
}

std::string name_of(const void *kernel) {
  static std::map<std::string, Mapped> *files = new std::map<std::string, Mapped>;
  Dl_info info;
  if (!dladdr(kernel, &info) || !info.dli_fname) return "";
  auto file = files->find(info.dli_fname);
  if (file == files->end())
    file = files->emplace(info.dli_fname, map_file(info.dli_fname)).first;
  return symbol_at(file->second, (uintptr_t)kernel - (uintptr_t)info.dli_fbase);
}

/* "_Z6attendI13__nv_bfloat16Li64ELb0EEv..." -> "attend": instances of a kernel whose
 * arguments the two compilers spell differently share the name. */
std::string base_of(const std::string &mangled) {
  size_t at = mangled.find_first_of("0123456789");
  if (at == std::string::npos) return mangled;
  char *end;
  size_t n = strtoul(mangled.c_str() + at, &end, 10);
  return std::string(end).substr(0, n);
}

/* The last kernel that was asked for in vain. */
std::string &unknown() {
  static std::string *name = new std::string;
  return *name;
}

/* Threads that the registers of a multiprocessor are enough for. */
int threads_for(int registers) {
  if (!registers) return THREADS;
  int warp = (registers * LANES + 255) / 256 * 256;
  return std::min((int)THREADS, REGISTERS / warp / 4 * 4 * LANES);
}

} // namespace

size_t shared_most(int capability) {
  if (capability >= 90 && capability < 120) return 227 << 10;
  if (capability == 80 || capability == 87) return 163 << 10;
  return 99 << 10;
}

static void add_most(KernelFigures *to, const KernelFigures &x) {
  to->fixed = std::max(to->fixed, x.fixed);
  to->registers = std::max(to->registers, x.registers);
}

/* On the newest architecture that the GPU runs; where there is no code for it, the most
 * that the kernel needs on another one, or that other instances of it need. */
static bool find_figures(const void *kernel, int capability, KernelFigures *f) {
  std::string name = name_of(kernel), base = base_of(name);
  KernelFigures here = {0, 0}, elsewhere = {0, 0}, like = {0, 0};
  int newest = 0;
  bool same = false, found = false;
  for (const auto &row : figures()) {
    int arch = row.first.second;
    bool runs = arch <= capability && arch / 10 == capability / 10;
    if (row.first.first == name) {
      same = true;
      add_most(&elsewhere, row.second);
      if (runs && arch >= newest) here = row.second, newest = arch;
    }
    if (base.empty() || base_of(row.first.first) != base) continue;
    found = true;
    add_most(&like, row.second);
  }
  *f = newest ? here : same ? elsewhere : like;
  if (!found) unknown() = name.empty() ? "a kernel without a name" : name;
  return found;
}

bool kernel_figures(const void *kernel, int capability, KernelFigures *f) {
  struct Found {
    KernelFigures figures;
    bool is;
  };
  static auto *known = new std::map<std::pair<const void *, int>, Found>;
  Guard g(runtime().lock);
  auto at = known->find({kernel, capability});
  if (at == known->end()) {
    Found x;
    x.is = find_figures(kernel, capability, &x.figures);
    at = known->emplace(std::make_pair(kernel, capability), x).first;
  }
  *f = at->second.figures;
  return at->second.is;
}

bool kernel_without_figures(char *name, size_t n) {
  Guard g(runtime().lock);
  snprintf(name, n, "%s", unknown().c_str());
  return !unknown().empty();
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) {
  standin_loaded(kernel);
  Runtime &r = runtime();
  Guard g(r.lock);
  KernelFigures f;
  if (r.wrong) return r.wrong;
  bool has_code = r.is.capability >= 80 && r.is.capability < 110;
  if (!has_code && r.is.no_ptx) return cudaErrorNoKernelImageForDevice;
  if (!has_code && r.is.driver < r.is.runtime) return cudaErrorUnsupportedPtxVersion;
  kernel_figures(kernel, r.is.capability, &f);
  *a = {};
  a->sharedSizeBytes = f.fixed;
  a->numRegs = f.registers;
  a->maxThreadsPerBlock = threads_for(f.registers);
  a->maxDynamicSharedSizeBytes = ALWAYS - (int)f.fixed;
  a->binaryVersion = r.is.capability;
  a->ptxVersion = 80;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute which,
                                 int value) {
  Runtime &r = runtime();
  Guard g(r.lock);
  KernelFigures f;
  kernel_figures(kernel, r.is.capability, &f);
  if (f.fixed + (size_t)value > shared_most(r.is.capability))
    return cudaErrorInvalidValue;
  r.room[kernel] = value;
  return cudaSuccess;
}

static cudaError_t launch_is(Runtime &r, const void *kernel, Dim3 grid, Dim3 threads,
                             size_t room) {
  KernelFigures f;
  kernel_figures(kernel, r.is.capability, &f);
  unsigned n = threads.x * threads.y * threads.z;
  if (!n || n > THREADS || !grid.x || !grid.y || !grid.z || grid.y > 65535 ||
      grid.z > 65535 || grid.x > 0x7fffffffu)
    return cudaErrorInvalidConfiguration;
  if ((int)n > threads_for(f.registers)) return cudaErrorLaunchOutOfResources;
  auto asked = r.room.find(kernel);
  size_t most = ALWAYS - std::min(f.fixed, (size_t)ALWAYS);
  if (asked != r.room.end()) most = std::max(most, (size_t)asked->second);
  return room <= most ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t emulate::launch_begins(cudaStream_t s, const void *kernel, Dim3 grid,
                                   Dim3 threads, size_t room) {
  if (s) standin_first_use(kernel);
  Runtime &r = runtime();
  Guard g(r.lock);
  cudaError_t e = launch_is(r, kernel, grid, threads, room);
  if (e == cudaSuccess) e = launch_says(r, s);
  if (e != cudaSuccess) r.last = e;
  return e;
}

/* But those that say how far a step is, and that it has labels. */
bool emulate::idle(const void *kernel) {
  if (!runtime().is.idle) return false;
  Guard g(runtime().lock);
  std::string name = kernel ? name_of(kernel) : "";
  return name.find("count_labelled") == name.npos && name.find("tell_host") == name.npos;
}
