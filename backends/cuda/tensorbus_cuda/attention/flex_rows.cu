// What is subtracted from the gradients of a row's shares: the sum of the gradient times the result, less the
// gradient of the row's logarithm. A warp has a row. Where the gradient does not lie as tiles are copied
// fast, it is packed here on the way.
@head@ {
  const int lane = threadIdx.x & 31;
  const long long at = (long long)blockIdx.x * TB_WARPS + threadIdx.x / 32;
  if (at >= rows) return;
  const unsigned int line = (unsigned int)(at / queries);
  const int row = (int)(at % queries), head = line % (unsigned int)heads, batch = line / (unsigned int)heads;
  const tb_half_t *g = grad + grad_o + batch * grad_b0 + head * grad_b1 + row * grad_s0;
  const tb_half_t *o = out + out_o + batch * out_b0 + head * out_b1 + row * out_s0;
  float sum = 0.0f;
  for (int d = lane; d < TB_DEEP; d += 32) {
    const tb_half_t bits = g[d * grad_s1];
    sum = fmaf(tb_wide(bits), tb_wide(o[d * out_s1]), sum);
#if TB_PACKS
    packed[at * TB_DEEP + d] = bits;
#endif
  }
#pragma unroll
  for (int away = 16; away; away /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, away);
  if (lane == 0)
    behind[at] = sum - grad_lse[grad_lse_o + batch * grad_lse_b0 + head * grad_lse_b1 + row * grad_lse_s0];
}
