// What both passes of the derivative need of each row, which a warp has: minus its logarithm, to the base of 2, and
// what is subtracted from the gradients of its shares: the sum of the gradient times the result, less the gradient
// of the logarithm. Where the gradient does not lie as tiles are copied fast, it is packed on the way.
@head@ {
  const int lane = threadIdx.x & 31;
  const long long at = (long long)blockIdx.x * TB_WARPS + threadIdx.x / 32;
  if (at >= rows) return;
  const unsigned int line = (unsigned int)(at / queries);
  const int row = (int)(at % queries), head = line % (unsigned int)heads, batch = line / (unsigned int)heads;
  const tb_half_t *g = grad + grad_o + batch * grad_b0 + head * grad_b1 + row * grad_s0;
  const tb_half_t *o = out + out_o + batch * out_b0 + head * out_b1 + row * out_s0;
  float sum = 0.0f;
#if TB_DEEP % 4 == 0
  // Four elements at a time: of the result where they lie so, of the gradient one by one where they do not.
  const bool by_four = out_s1 == 1 && (unsigned long long)o % 8 == 0;
  const bool given = grad_s1 == 1 && (unsigned long long)g % 8 == 0;
#pragma unroll
  for (int d = 4 * lane; d < TB_DEEP; d += 128) {
    ushort4 x, y;
    if (given) {
      x = *(const ushort4 *)(g + d);
    } else {
      x = make_ushort4(g[d * grad_s1], g[(d + 1) * grad_s1], g[(d + 2) * grad_s1], g[(d + 3) * grad_s1]);
    }
    if (by_four) {
      y = *(const ushort4 *)(o + d);
    } else {
      y = make_ushort4(o[d * out_s1], o[(d + 1) * out_s1], o[(d + 2) * out_s1], o[(d + 3) * out_s1]);
    }
    sum = fmaf(tb_to_float(x.x), tb_to_float(y.x), sum);
    sum = fmaf(tb_to_float(x.y), tb_to_float(y.y), sum);
    sum = fmaf(tb_to_float(x.z), tb_to_float(y.z), sum);
    sum = fmaf(tb_to_float(x.w), tb_to_float(y.w), sum);
#if TB_PACKS
    *(ushort4 *)(packed + at * TB_DEEP + d) = x;
#endif
  }
#else
  for (int d = lane; d < TB_DEEP; d += 32) {
    const tb_half_t bits = g[d * grad_s1];
    sum = fmaf(tb_to_float(bits), tb_to_float(o[d * out_s1]), sum);
#if TB_PACKS
    packed[at * TB_DEEP + d] = bits;
#endif
  }
#endif
#pragma unroll
  for (int away = 16; away; away /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, away);
  if (lane == 0) {
    const float log = lse[lse_o + batch * lse_b0 + head * lse_b1 + row * lse_s0];
    minus[at] = log == -TB_INFINITY ? log : -log * TB_LOG2E;  // a row that sees nothing has no shares
    behind[at] = sum - grad_lse[grad_lse_o + batch * grad_lse_b0 + head * grad_lse_b1 + row * grad_lse_s0];
  }
}
