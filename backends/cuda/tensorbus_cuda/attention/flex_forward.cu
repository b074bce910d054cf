// A tile of queries goes over its keys, with the softmax made on the way. In one stage keys of the next tile come
// while values of this one are weighed, and values while its scores are made; in two, both all the time.
// Parts of the keys leave their sums, to be joined.
#if TB_TOGETHER  // rows are the heads that share keys, of one query each
#define TB_ROWS share
#define TB_HEAD(i) (head + (i))
#define TB_QUERY(i) 0
#else
#define TB_ROWS queries
#define TB_HEAD(i) head
#define TB_QUERY(i) (i)
#endif
@head@ {
  constexpr int ROWS = TB_M * 16, THREADS = TB_WARPS * 32, TALL = TB_WARPS * ROWS;
  constexpr int KEYS = tb_size(TB_N, TB_WIDTH), VALUES = tb_size(TB_N, TB_DEEP);
  extern __shared__ uint4 tb_memory[];
  tb_half_t *const queries_ = tb_first_tile(tb_memory), *const keys_ = queries_ + tb_size(TALL, TB_WIDTH);
  tb_half_t *const values_ = keys_ + TB_STAGES * KEYS;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned int rest = blockIdx.x;
  const int tile = (int)tiles - 1 - (int)(rest % (unsigned int)tiles);  // the last ones have most keys, if any have
  rest /= (unsigned int)tiles;
#if TB_TOGETHER
  const int own = rest % (unsigned int)own_heads, head = own * (int)share;
  rest /= (unsigned int)own_heads;
#else
  const int head = rest % (unsigned int)heads, own = head / (int)share;
  rest /= (unsigned int)heads;
#endif
#if TB_PARTS
  const int part = rest % (unsigned int)parts;
  rest /= (unsigned int)parts;
#endif
  const int batch = rest;
  int block = 0, first = tile * TALL, stop = TB_TOGETHER ? (int)share : (int)queries;
#if TB_STATES && !TB_TOGETHER
  block = tile / (int)tiles_each;
  first = block * (int)query_block + tile % (int)tiles_each * TALL;
  stop = min((block + 1) * (int)query_block, (int)queries);
#endif
  const tb_rows q(query + query_o + batch * query_b0 + head * query_b1, TB_TOGETHER ? query_b1 : query_s0, query_s1,
                  TB_WIDTH);
  const tb_rows k(key + key_o + batch * key_b0 + own * key_b1, key_s0, key_s1, TB_WIDTH);
  const tb_rows v(value + value_o + batch * value_b0 + own * value_b1, value_s0, value_s1, TB_DEEP);
  tb_runs runs;
  int begin = 0;
  runs.length = (int)keys;
#if TB_PARTS
  begin = part * (int)part_length;
  runs.length = min(begin + (int)part_length, (int)keys);
#endif
  runs.states = nullptr;
#if TB_STATES
  runs.states = states + states_o + batch * states_b0 + head * states_b1 + block * states_s0;
  runs.step = states_s1, runs.size = (int)key_block, runs.blocks = (runs.length + runs.size - 1) / runs.size;
#endif
  q.copy<TALL, TB_WIDTH, THREADS>(queries_, first, stop - first);
  bool more = runs.begin(begin);
  if (more) k.copy<TB_N, TB_WIDTH, THREADS>(keys_, runs.at, runs.stop - runs.at);
  if (TB_STAGES == 2 && more) v.copy<TB_N, TB_DEEP, THREADS>(values_, runs.at, runs.stop - runs.at);
  tb_commit();
  constexpr int DEPTH = tb_padded(TB_DEEP) / 8;
  float result[TB_M][DEPTH][4], highest[TB_M][2], total[TB_M][2];
  tb_clear(result);
  tb_each_row<TB_M>([&](int m, int half, int) {
    highest[m][half] = -TB_INFINITY;
    total[m][half] = 0.0f;
  });
  const int row = first + warp * ROWS + lane / 4;
  // Where nothing is done to scores they are scaled as they are taken to the power of.
  const float factor = TB_FOLDS ? scale * TB_LOG2E : TB_LOG2E;
  int now = 0;
  while (more) {
    const int at = runs.at, end = runs.stop;
    const bool undecided = runs.partial;
    tb_arrived();
#if TB_STAGES == 2
    more = runs.advance(TB_N);
    if (more) {
      k.copy<TB_N, TB_WIDTH, THREADS>(keys_ + (now ^ 1) * KEYS, runs.at, runs.stop - runs.at);
      v.copy<TB_N, TB_DEEP, THREADS>(values_ + (now ^ 1) * VALUES, runs.at, runs.stop - runs.at);
    }
#else
    v.copy<TB_N, TB_DEEP, THREADS>(values_, at, end - at);
#endif
    tb_commit();
    float scores[TB_M][TB_N / 8][4];
    tb_take_turn();
    tb_products<TB_WIDTH, TALL>(scores, queries_, keys_ + now * KEYS);
    tb_wait<0>();
    tb_pass();
    tb_results_fence(scores);
#if TB_STAGES == 1
    tb_arrived();
    more = runs.advance(TB_N);
    if (more) k.copy<TB_N, TB_WIDTH, THREADS>(keys_, runs.at, runs.stop - runs.at);
    tb_commit();
#endif
    const int column = at + lane % 4 * 2;
    if (!TB_FOLDS)
      tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
        const int i = TB_INSIDE(row + m * 16 + e / 2 * 8, TB_ROWS), j = TB_INSIDE(column + n * 8 + e % 2, keys);
        scores[m][n][e] = TB_SCORE(scores[m][n][e] * scale, batch, TB_HEAD(i), TB_QUERY(i), j);
      });
    const bool ends = at + TB_N > end;
    if (ends || (TB_MASKED && undecided))
      tb_each<TB_M, TB_N / 8>([&](int m, int n, int e) {
        const int i = TB_INSIDE(row + m * 16 + e / 2 * 8, TB_ROWS), j = column + n * 8 + e % 2;
        bool counts = j < end;
        if (TB_MASKED && undecided) counts &= TB_COUNTS(batch, TB_HEAD(i), TB_QUERY(i), TB_INSIDE(j, keys));
        scores[m][n][e] = counts ? scores[m][n][e] : -TB_INFINITY;
      });
    tb_each_row<TB_M>([&](int m, int half, int) {
      float high = highest[m][half];
#pragma unroll
      for (int n = 0; n < TB_N / 8; ++n)
        high = fmaxf(high, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
      const float top = high == -TB_INFINITY ? 0.0f : high * factor;
      const float rescale = tb_exp2(fmaf(highest[m][half], factor, -top));
      highest[m][half] = high;
      float sum = total[m][half] * rescale;
#pragma unroll
      for (int n = 0; n < TB_N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[m][n][e] = tb_exp2(fmaf(scores[m][n][e], factor, -top));
          sum += scores[m][n][e];
        }
      total[m][half] = sum;
      if (__any_sync(0xffffffffu, rescale != 1.0f)) {
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
          result[m][d][2 * half] *= rescale;
          result[m][d][2 * half + 1] *= rescale;
        }
      }
    });
    tb_weighted<TB_DEEP>(result, scores, values_ + now * VALUES);
    tb_wait<0>();
    tb_results_fence(result);
    if (TB_STAGES == 2) now ^= 1;
  }
  tb_arrived();
#if TB_PARTS
  const long long group = ((long long)part * batches + batch) * heads + head;
#else
  const long long group = (long long)batch * heads + head;
#endif
  const long long line = group * queries + first + warp * ROWS;
  const int count = stop - first - warp * ROWS;
#if !TB_PARTS
  float shares[TB_M][2];
#endif
  tb_each_row<TB_M>([&](int m, int half, int place) {
    float all = total[m][half];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    const float high = TB_FOLDS ? highest[m][half] * scale : highest[m][half];
#if TB_PARTS
    if (lane % 4 == 0 && place < count) {
      sum[line + place] = all;
      top[line + place] = high;
    }
#else
    const bool dead = all == 0.0f;
    shares[m][half] = dead ? 0.0f : 1.0f / all;
    if (lane % 4 == 0 && place < count) lse[line + place] = dead ? -TB_INFINITY : high + logf(all);
#endif
  });
#if TB_PARTS
  tb_store_sums<TB_DEEP>(partial + line * TB_DEEP, result, count);
#else
  tb_store_rows<TB_DEEP>(out + line * TB_DEEP, result, shares, count);
#endif
}
