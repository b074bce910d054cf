// The gradient of the queries: a tile of them goes over its keys. Keys and values of the next tile come while
// this one is worked on.
@head@ {
  constexpr int ROWS = TB_M * 16, THREADS = TB_WARPS * 32, TALL = TB_WARPS * ROWS;
  constexpr int KEYS = tb_size(TB_N, TB_WIDTH), VALUES = tb_size(TB_N, TB_DEEP);
  extern __shared__ uint4 tb_memory[];
  tb_half_t *const queries_ = tb_first_tile(tb_memory), *const grads_ = queries_ + tb_size(TALL, TB_WIDTH);
  tb_half_t *const keys_ = grads_ + tb_size(TALL, TB_DEEP), *const values_ = keys_ + 2 * KEYS;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned int rest = blockIdx.x;
  const int tile = (int)tiles - 1 - (int)(rest % (unsigned int)tiles);
  rest /= (unsigned int)tiles;
  const int head = rest % (unsigned int)heads, batch = rest / (unsigned int)heads, own = head / (int)share;
  int block = 0, first = tile * TALL, stop = (int)queries;
#if TB_STATES
  block = tile / (int)tiles_each;
  first = block * (int)query_block + tile % (int)tiles_each * TALL;
  stop = min((block + 1) * (int)query_block, (int)queries);
#endif
  const tb_rows q(query + query_o + batch * query_b0 + head * query_b1, query_s0, query_s1, TB_WIDTH);
  const tb_rows g(grad + grad_o + batch * grad_b0 + head * grad_b1, grad_s0, grad_s1, TB_DEEP);
  const tb_rows k(key + key_o + batch * key_b0 + own * key_b1, key_s0, key_s1, TB_WIDTH);
  const tb_rows v(value + value_o + batch * value_b0 + own * value_b1, value_s0, value_s1, TB_DEEP);
  tb_runs runs;
  runs.length = (int)keys;
  runs.states = nullptr;
#if TB_STATES
  runs.states = states + states_o + batch * states_b0 + head * states_b1 + block * states_s0;
  runs.step = states_s1, runs.blocks = (int)key_blocks, runs.size = (int)key_block;
#endif
  q.copy<TALL, TB_WIDTH, THREADS>(queries_, first, stop - first);
  g.copy<TALL, TB_DEEP, THREADS>(grads_, first, stop - first);
  bool more = runs.begin();
  if (more) {
    k.copy<TB_N, TB_WIDTH, THREADS>(keys_, runs.at, runs.stop - runs.at);
    v.copy<TB_N, TB_DEEP, THREADS>(values_, runs.at, runs.stop - runs.at);
  }
  tb_commit();
  const int row = first + warp * ROWS + lane / 4, count = stop - first - warp * ROWS;
  float logs[TB_M][2], less[TB_M][2], result[TB_M][tb_padded(TB_WIDTH) / 8][4];
  tb_clear(result);
  tb_each_row<TB_M>([&](int m, int half, int) {
    const int i = row + m * 16 + half * 8;
    const bool there = i < stop;
    const long long line = ((long long)batch * heads + head) * queries + i;
    logs[m][half] = there ? minus[line] : -TB_INFINITY;
    less[m][half] = there ? behind[line] : 0.0f;
  });
  const float factor = scale * TB_LOG2E;
  int now = 0;
  while (more) {
    const int at = runs.at, end = runs.stop;
    const bool partial = runs.partial;
    tb_arrived();
    more = runs.advance(TB_N);
    if (more) {
      k.copy<TB_N, TB_WIDTH, THREADS>(keys_ + (now ^ 1) * KEYS, runs.at, runs.stop - runs.at);
      v.copy<TB_N, TB_DEEP, THREADS>(values_ + (now ^ 1) * VALUES, runs.at, runs.stop - runs.at);
    }
    tb_commit();
    float scores[TB_M][TB_N / 8][4], slopes[TB_M][TB_N / 8][4];
    tb_take_turn();
    tb_products<TB_WIDTH, TALL>(scores, queries_, keys_ + now * KEYS);
    tb_products<TB_DEEP, TALL>(slopes, grads_, values_ + now * VALUES);
    tb_wait<1>();
    tb_pass();
    tb_results_fence(scores);
    // Scores become shares while the gradients of shares are still made.
    const int column = at + lane % 4 * 2;
    const bool some = at + TB_N > end || (TB_MASKED && partial);
#if TB_CHANGES
    float before[TB_M][TB_N / 8][4];
#endif
    tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
#if TB_CHANGES
      const int i = TB_INSIDE(row + m * 16 + e / 2 * 8, queries), j = TB_INSIDE(column + n * 8 + e % 2, keys);
      before[m][n][e] = scores[m][n][e] * scale;
      const float score = TB_SCORE(before[m][n][e], batch, head, i, j);
      scores[m][n][e] = tb_exp2(fmaf(score, TB_LOG2E, logs[m][e / 2]));
#else
      scores[m][n][e] = tb_exp2(fmaf(scores[m][n][e], factor, logs[m][e / 2]));
#endif
    });
    if (some)
      tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
        const int i = TB_INSIDE(row + m * 16 + e / 2 * 8, queries), j = column + n * 8 + e % 2;
        bool counts = j < end;
        if (TB_MASKED && partial) counts &= TB_COUNTS(batch, head, i, TB_INSIDE(j, keys));
        scores[m][n][e] = counts ? scores[m][n][e] : 0.0f;
      });
    tb_wait<0>();
    tb_results_fence(slopes);
    tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
      const float changed = scores[m][n][e] * (slopes[m][n][e] - less[m][e / 2]);
#if TB_CHANGES
      const int i = TB_INSIDE(row + m * 16 + e / 2 * 8, queries), j = TB_INSIDE(column + n * 8 + e % 2, keys);
      slopes[m][n][e] = TB_SLOPE(changed, before[m][n][e], batch, head, i, j);
#else
      slopes[m][n][e] = changed;
#endif
      // Of what does not count the derivative may be anything, infinity times 0 included.
      if (some) slopes[m][n][e] = scores[m][n][e] == 0.0f ? 0.0f : slopes[m][n][e];
    });
    tb_weighted<TB_WIDTH>(result, slopes, keys_ + now * KEYS);
    tb_wait<0>();
    tb_results_fence(result);
    now ^= 1;
  }
  tb_arrived();
  float factors[TB_M][2];
#pragma unroll
  for (int m = 0; m < TB_M; ++m) factors[m][0] = factors[m][1] = scale;
  const long long line = ((long long)batch * heads + head) * queries + first + warp * ROWS;
  tb_store_rows<TB_WIDTH>(dquery + line * TB_WIDTH, result, factors, count);
}
