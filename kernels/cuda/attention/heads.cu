/* heads.cu - joins and splits heads that consist of two parts. One thread per element of
 * the joined tensor; a second part shared by all heads is summed by one thread per
 * element, over the heads in order. */
#include "kernels/cuda/kernel.cuh"

/* whole(rows,H*(p+q)), first(rows,H*p), second(rows,H*q); or, if it is shared,
 * second(rows,q). */
struct Parts {
  int64_t rows, heads, p, q;
  bool shared;
};

static Parts parts_of(const KernelArgs *a, const KTensor *whole, const KTensor *second) {
  int64_t d = a->attr->head_dim, heads = cuda_last(whole) / d, q = d - a->attr->head_part;
  return Parts{cuda_rows(whole), heads, d - q, q, cuda_last(second) != heads * q};
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    join_parts(Parts s, T *whole, const T *first, const T *second) {
  int64_t d = s.p + s.q, n = s.rows * s.heads * d;
  EACH_ELEMENT(i, n) {
    int64_t head = i / d, c = i % d, row = s.shared ? head / s.heads : head;
    whole[i] = c < s.p ? first[head * s.p + c] : second[row * s.q + c - s.p];
  }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    split_parts(Parts s, const T *whole, T *first, T *second) {
  int64_t d = s.p + s.q, n = s.rows * s.heads * d;
  EACH_ELEMENT(i, n) {
    int64_t head = i / d, c = i % d;
    if (c < s.p)
      first[head * s.p + c] = whole[i];
    else if (!s.shared)
      second[head * s.q + c - s.p] = whole[i];
    else if (head % s.heads == 0) {
      float sum = 0;
      for (int64_t h = 0; h < s.heads; h++) sum += load(whole[i + h * d]);
      second[head / s.heads * s.q + c - s.p] = rounded<T>(sum);
    }
  }
}

void cuda_split_heads(Device *d, const KernelArgs *a) {
  Parts s = parts_of(a, &a->in[0], &a->out[1]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((split_parts<T>), blocks_for(cuda_count(&a->in[0])), BLOCK, cuda_stream(d), s,
           data<const T>(&a->in[0]), data<T>(&a->out[0]), data<T>(&a->out[1]));
  });
}

void cuda_join_heads(Device *d, const KernelArgs *a) {
  Parts s = parts_of(a, &a->out[0], &a->in[1]);
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((join_parts<T>), blocks_for(cuda_count(&a->out[0])), BLOCK, cuda_stream(d), s,
           data<T>(&a->out[0]), data<const T>(&a->in[0]), data<const T>(&a->in[1]));
  });
}
