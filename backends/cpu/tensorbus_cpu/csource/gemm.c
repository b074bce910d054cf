// Products of matrices: small ones here, others by BLAS, a box at a time on our threads.

typedef void (*small_product)(const int64_t *, const void *, const void *, void *, int64_t, int64_t);
static small_product small_float, small_double;

void tb_use_small(void *s, void *d) { small_float = (small_product)s, small_double = (small_product)d; }

typedef void (*gemm_s)(int, int, int, int64_t, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t,
                       float, void *, int64_t);
typedef void (*gemm_d)(int, int, int, int64_t, int64_t, int64_t, double, const void *, int64_t, const void *, int64_t,
                       double, void *, int64_t);
typedef void (*gemv_s)(int, int, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t, float, void *,
                       int64_t);
typedef void (*gemv_d)(int, int, int64_t, int64_t, double, const void *, int64_t, const void *, int64_t, double,
                       void *, int64_t);
enum { ROWS = 101, PLAIN = 111, TURNED = 112 };

enum { APART, AS_ROWS, AS_STACK, AS_ONE };

// Run the kernel that reads a product element by element on what a box has made. Its grid: rows of all matrices
// on axis 1, or rows on axis 1 and matrices on axis 2, or all elements on axis 0, where boxes are whole rows.
static void go_on(const product *q, int64_t which, int64_t i, int64_t j, int64_t m, int64_t n) {
  int64_t range[6] = {j, j + n, i, i + m, which, which + 1};
  if (q->after != AS_STACK) range[2] += which * q->m, range[3] += which * q->m, range[4] = 0, range[5] = 1;
  if (q->after == AS_ONE) range[0] = range[2] * q->n, range[1] = range[3] * q->n, range[2] = 0, range[3] = 1;
  q->next->run(q->next->buffers, q->next->params, range);
}

static void multiply(const product *, int64_t, int64_t, int64_t, int64_t, int64_t);

static void product_box(void *with, int64_t box) {
  const product *q = with;
  const int64_t column = box % q->columns, row = box / q->columns % q->rows, which = box / q->columns / q->rows;
  const int64_t i = row * q->tall, j = column * q->broad;
  const int64_t m = i + q->tall < q->m ? q->tall : q->m - i, n = j + q->broad < q->n ? q->broad : q->n - j;
  multiply(q, which, i, j, m, n);
  if (q->after) go_on(q, which, i, j, m, n);
}

static void multiply(const product *q, int64_t which, int64_t i, int64_t j, int64_t m, int64_t n) {
  const int64_t size = q->wide ? 8 : 4;
  int64_t a_at = 0, b_at = 0, rest = which;
  for (int64_t axis = q->rank; axis-- > 0; rest /= q->lengths[axis]) {
    a_at += rest % q->lengths[axis] * q->a_strides[axis];
    b_at += rest % q->lengths[axis] * q->b_strides[axis];
  }
  const char *a = q->pa + (a_at + i * q->a_row) * size, *b = q->pb + (b_at + j * q->b_column) * size;
  char *c = q->pc + (which * q->m * q->n + i * q->n + j) * size;
  if (!sgemm || q->m * q->n * q->k <= 16384) {
    const int64_t about[] = {q->k, q->a_row, q->a_column, q->b_row, q->b_column, q->n};
    (q->wide ? small_double : small_float)(about, a, b, c, m, n);
    return;
  }
  const int turn_a = q->a_column == 1 ? PLAIN : TURNED, turn_b = q->b_column == 1 ? PLAIN : TURNED;
  const int64_t lead_a = q->a_column == 1 ? q->a_row : q->a_column, lead_b = q->b_column == 1 ? q->b_row : q->b_column;
  if (q->m == 1 && sgemv) {  // c = b' a
    const int turned = turn_b == PLAIN ? TURNED : PLAIN;
    const int64_t tall = turn_b == PLAIN ? q->k : n, wide = turn_b == PLAIN ? n : q->k;
    if (q->wide) ((gemv_d)dgemv)(ROWS, turned, tall, wide, 1, b, lead_b, a, q->a_column, 0, c, 1);
    else ((gemv_s)sgemv)(ROWS, turned, tall, wide, 1, b, lead_b, a, q->a_column, 0, c, 1);
  } else if (q->n == 1 && sgemv) {
    const int64_t tall = turn_a == PLAIN ? m : q->k, wide = turn_a == PLAIN ? q->k : m;
    if (q->wide) ((gemv_d)dgemv)(ROWS, turn_a, tall, wide, 1, a, lead_a, b, q->b_row, 0, c, 1);
    else ((gemv_s)sgemv)(ROWS, turn_a, tall, wide, 1, a, lead_a, b, q->b_row, 0, c, 1);
  } else if (q->wide) {
    ((gemm_d)dgemm)(ROWS, turn_a, turn_b, m, n, q->k, 1, a, lead_a, b, lead_b, 0, c, q->n);
  } else {
    ((gemm_s)sgemm)(ROWS, turn_a, turn_b, m, n, q->k, 1, a, lead_a, b, lead_b, 0, c, q->n);
  }
}
