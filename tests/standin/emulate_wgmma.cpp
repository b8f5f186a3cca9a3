/* emulate_wgmma.cpp - products of a warpgroup (wgmma.mma_async m64nNk16, bf16). Matrices
 * in shared memory are read element by element through their descriptors, by the PTX
 * ISA's canonical layouts of the 128-byte swizzle:
 *   K-major   ((8,m),(T,2)) : ((8T,SBO),(1,T))        rows of K
 *   MN-major  ((T,8,m),(8,k)) : ((1,T,LBO),(8T,SBO))  rows of M or N
 * with T = 8 elements, 16 bytes, and address bits 4 to 6 of an element xored with bits 7
 * to 9. */
#include "emulate_wgmma.h"

#include "standin.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

namespace emulate {
namespace {

enum { GROUP = 128, M = 64, K = 16, T = 8, ATOM = 1024, WIDE = 128 };
/* What a sum is before it has been waited for: no number. */
const uint32_t ABSENT = 0x7fc0dead;

struct Matrix {
  unsigned address, lbo, sbo;
};

Matrix decode(uint64_t d) {
  const uint64_t known = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62;
  if (d & ~known) refuse("a matrix descriptor with bits that have no meaning here");
  if (d >> 62 != 1) refuse("a matrix descriptor whose swizzle is not that of 128 bytes");
  Matrix m = {(unsigned)(d & 0x3fff) << 4, (unsigned)(d >> 16 & 0x3fff) << 4,
              (unsigned)(d >> 32 & 0x3fff) << 4};
  return m;
}

/* Where element (i, k) lies, i of M or N. */
unsigned place_of(const Matrix &m, bool k_major, int i, int k) {
  unsigned u = (unsigned)i, v = (unsigned)k, bytes;
  if (k_major)
    bytes = 2 * (u % 8 * (8 * T) + v % T + v / T * T) + u / 8 * m.sbo;
  else
    bytes = 2 * (u % T + u / T % 8 * T + v % 8 * (8 * T)) + u / (8 * T) * m.lbo +
            v / 8 * m.sbo;
  unsigned at = m.address + bytes;
  return at ^ (at >> 7 & 7) << 4;
}

/* The pattern of eight rows begins at a multiple of 1024 bytes; inside of it only steps
 * along rows of K are known to work. */
void check_base(const Matrix &m, bool k_major, int n) {
  if (m.address % ATOM >= (k_major ? WIDE : 1))
    refuse("a matrix whose rows do not begin at a multiple of 1024 bytes");
  if (m.address % 32) refuse("a matrix that does not begin at a column of 16");
  if (m.sbo % ATOM || (!k_major && n > 8 * T && m.lbo % ATOM))
    refuse("distances in a matrix that are no multiple of 1024 bytes");
}

/* Elements of a matrix (n, K), as they lie in shared memory now. */
std::vector<uint16_t> read(const Matrix &m, bool k_major, int n) {
  std::vector<uint16_t> all((size_t)n * K);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < K; k++)
      all[(size_t)(i * K + k)] =
          *(const uint16_t *)at_address(place_of(m, k_major, i, k));
  return all;
}

float number(uint16_t bits) { return __bfloat162float(__nv_bfloat16{bits}); }

/* A matrix in shared memory that a product reads until it was waited for. */
struct Reads {
  Matrix m;
  bool k_major;
  int n;
  std::vector<uint16_t> was;
};

struct Product {
  std::vector<Reads> reads;
  int waits = GROUP; /* threads that have not waited */
};

/* Of one thread: sums on their way to registers. */
struct Sums {
  float *to;
  std::vector<float> v;
};
struct Registers {
  const uint32_t *at;
  uint32_t was[4];
};
struct Group {
  std::vector<std::shared_ptr<Product>> products;
  std::vector<Registers> a;
  std::vector<Sums> sums;
};
struct Pending {
  std::deque<Group> groups; /* the last one is open */
  bool begun = false;       /* a fence since the last wait */
};
thread_local std::vector<Pending> pending;
thread_local std::vector<std::weak_ptr<Product>> reading;

Pending &mine() {
  size_t n = threads.x * threads.y * threads.z;
  if (pending.size() < n) pending.resize(n);
  Pending &p = pending[thread_number()];
  if (p.groups.empty()) p.groups.emplace_back();
  return p;
}

/* What a product would add to: sums on their way, or what is in the registers. */
Sums *on_its_way(Pending &p, const float *to) {
  for (auto g = p.groups.rbegin(); g != p.groups.rend(); ++g)
    for (Sums &s : g->sums)
      if (s.to == to) return &s;
  return nullptr;
}

struct Call {
  float *c;
  int tiles;
  const uint32_t *a_regs;
  uint64_t a, b;
  bool turned, add;
  Pending *p;
};

bool same(const Call &x, const Call &y) {
  return x.tiles == y.tiles && !x.a_regs == !y.a_regs && x.a == y.a && x.b == y.b &&
         x.turned == y.turned && x.add == y.add;
}

Reads reads_of(uint64_t descriptor, bool k_major, int n) {
  Matrix m = decode(descriptor);
  check_base(m, k_major, n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < K; k++) {
      const void *p = at_address(place_of(m, k_major, i, k));
      if (!in_room(p, 2)) refuse("wgmma of what is not the shared memory of the launch");
      if (!is_visible(p))
        refuse("wgmma of what was written without a proxy fence of its writer before the "
               "barrier");
    }
  return Reads{m, k_major, n, read(m, k_major, n)};
}

/* Row and first column of pair r of a lane's registers of a, and of tile n of c. */
struct Place {
  int row, col;
};
Place place(int t, int r) {
  return Place{t / 32 * 16 + t % 32 / 4 + r % 2 * 8, t % 4 * 2 + r / 2 * 8};
}

/* Sums of a thread that a call adds to or makes, which are in no register until it waits.
 */
Sums &take(const Call &x) {
  size_t n = (size_t)x.tiles * 4;
  Sums *s = on_its_way(*x.p, x.c);
  Group &g = x.p->groups.back();
  Sums now = {x.c, std::vector<float>(n, 0.0f)};
  if (x.add && s)
    now.v = s->v;
  else if (x.add)
    now.v.assign(x.c, x.c + n);
  if (s && s >= g.sums.data() && s < g.sums.data() + g.sums.size())
    *s = now;
  else
    g.sums.push_back(now), s = &g.sums.back();
  for (size_t i = 0; i < n; i++) memcpy(&x.c[i], &ABSENT, sizeof ABSENT);
  return *s;
}

void multiply(void *const *lane) {
  const Call &first = *(const Call *)lane[0];
  int n = first.tiles * 8;
  for (int t = 0; t < GROUP; t++) {
    const Call &x = *(const Call *)lane[t];
    if (!same(x, first)) refuse("threads of a warpgroup that multiply different things");
    if (!x.p->begun) refuse("wgmma without wgmma.fence since registers were there");
  }
  auto product = std::make_shared<Product>();
  std::vector<float> a(M * K), b((size_t)n * K), c((size_t)M * (size_t)n);
  if (!first.a_regs) {
    product->reads.push_back(reads_of(first.a, true, M));
    for (int i = 0; i < M * K; i++)
      a[(size_t)i] = number(product->reads[0].was[(size_t)i]);
  }
  product->reads.push_back(reads_of(first.b, !first.turned, n));
  const std::vector<uint16_t> &bits = product->reads.back().was;
  for (size_t i = 0; i < bits.size(); i++) b[i] = number(bits[i]);
  std::vector<Sums *> sums(GROUP);
  for (int t = 0; t < GROUP; t++) {
    const Call &x = *(const Call *)lane[t];
    Group &g = x.p->groups.back();
    if (x.a_regs) {
      Registers r = {x.a_regs, {x.a_regs[0], x.a_regs[1], x.a_regs[2], x.a_regs[3]}};
      for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++)
          a[(size_t)(place(t, k).row * K + place(t, k).col + i)] =
              number((uint16_t)(r.was[k] >> 16 * i));
      g.a.push_back(r);
    }
    g.products.push_back(product);
    sums[(size_t)t] = &take(x);
    for (int j = 0; j < n / 4; j++) {
      Place at = place(t, j % 2);
      for (int i = 0; i < 2; i++)
        c[(size_t)(at.row * n + j / 2 * 8 + at.col + i)] =
            sums[(size_t)t]->v[(size_t)(2 * j + i)];
    }
  }
  if (standin_is()->wgmma_wrong) std::copy_n(a.begin(), K, a.end() - K);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < n; j++)
      for (int k = 0; k < K; k++)
        c[(size_t)(i * n + j)] += a[(size_t)(i * K + k)] * b[(size_t)(j * K + k)];
  for (int t = 0; t < GROUP; t++)
    for (int j = 0; j < n / 4; j++) {
      Place at = place(t, j % 2);
      for (int i = 0; i < 2; i++)
        sums[(size_t)t]->v[(size_t)(2 * j + i)] =
            c[(size_t)(at.row * n + j / 2 * 8 + at.col + i)];
    }
  reading.erase(std::remove_if(reading.begin(), reading.end(),
                               [](const auto &p) { return p.expired(); }),
                reading.end());
  reading.push_back(product);
}

void end_product(Product *p) {
  if (thread_number() % 32 == 0)
    for (const Reads &r : p->reads)
      if (read(r.m, r.k_major, r.n) != r.was)
        refuse("shared memory that was written while wgmma read it");
  p->waits--;
}

void end_group(Group *g) {
  for (auto &p : g->products) end_product(p.get());
  for (const Registers &r : g->a)
    if (memcmp(r.at, r.was, sizeof r.was))
      refuse("registers that were written while wgmma read them");
}

/* A later group may still add to the same sums. */
void put(const Sums &s, Pending *p) {
  for (size_t i = 0; i < s.v.size(); i++)
    if (memcmp(&s.to[i], &ABSENT, sizeof ABSENT))
      refuse("sums that were written before wgmma was waited for");
  if (on_its_way(*p, s.to)) return;
  memcpy(s.to, s.v.data(), s.v.size() * sizeof(float));
}

/* While a product reads, nothing may be on its way to the same bytes. */
bool is_read(const void *to, size_t bytes) {
  unsigned from = address_of(to), end = from + (unsigned)bytes;
  for (const auto &weak : reading) {
    auto p = weak.lock();
    if (!p || !p->waits) continue;
    for (const Reads &r : p->reads)
      for (int i = 0; i < r.n; i++)
        for (int k = 0; k < K; k++) {
          unsigned at = place_of(r.m, r.k_major, i, k);
          if (at >= from && at < end) return true;
        }
  }
  return false;
}

} // namespace

void wgmma(float *c, int tiles, const uint32_t *a_regs, uint64_t a, uint64_t b,
           bool turned, bool add) {
  Call x = {c, tiles, a_regs, a, b, turned, add, &mine()};
  together_four(multiply, &x);
}

void wgmma_fence() { mine().begun = true; }

void touched() { mine().begun = false; }

void wgmma_commit() { mine().groups.emplace_back(); }

void wgmma_wait(size_t last) {
  Pending &p = mine();
  while (p.groups.size() > last + 1) {
    Group g = std::move(p.groups.front());
    p.groups.pop_front();
    end_group(&g);
    for (const Sums &s : g.sums) put(s, &p);
  }
  p.begun = false;
}

void products_are_waited_for() {
  if (pending.size() <= thread_number()) return;
  Pending &p = pending[thread_number()];
  for (const Group &g : p.groups)
    if (!g.products.empty()) refuse("wgmma that is not waited for");
  p = Pending();
  reading.clear();
}

void no_product_reads(const void *to, size_t bytes) {
  if (reading.empty()) return;
  if (is_read(to, bytes)) refuse("a copy or store to what wgmma reads");
}

} // namespace emulate
