// Programs as tables: steps over slots of memory, which are inputs, results and places in an arena.
//
// A table is told by bytecode, 64-bit numbers: bytecode.py writes it.

enum { KERNEL, PRODUCT, PYTHON, ROWS_ADDED };
enum { ARRAY, FLOAT, INTEGER, BOOL };

typedef struct { int64_t param, input; } late;
typedef struct { int64_t slot, offset, rank; intptr_t *lengths, *strides; object *dtype; } view;

typedef struct { int64_t buffer, bytes; } past;  // a result that goes past the caches, and what a work-item fills

typedef struct {
  tb_kernel run;
  int64_t count, *slots, lates, grid[3], piece[3], boxes;
  int64_t pasts, stride, goes_past;  // stride: how many work-items fill a block
  past *past;
  slot *params;
  late *late;
  void **buffers;
} kernel;

typedef struct {  // c = a @ b: strides of matrices in elements; batch axes outermost first, c packed
  int64_t wide, a, b, c, m, n, k, a_row, a_column, b_row, b_column, rank, count;
  int64_t *lengths, *a_strides, *b_strides, a_offset, b_offset;
  int64_t tall, broad, rows, columns;  // a box, and how many along each axis
  int64_t after;                       // how the next step goes on with a box while it is in cache; 0: not
  kernel *next;
  const char *pa, *pb;
  char *pc;
} product;

typedef struct { object *call; int64_t count, results, *slots; view *operands; } python;

// out = x, which may be the same memory, and then row `index[k]` += row k of value
typedef struct {
  int64_t x, x_offset, out, value, value_offset, index, index_offset, count, limit, width, code;
  const float *from, *added;
  const int64_t *places;
  float *to;
} rows;

typedef struct {
  int64_t kind, error, group, boxes, drops;  // group: how many kernels from here on are one job
  int64_t *dropped;
  union { kernel kernel; product product; python python; rows rows; };
} step;

typedef struct { int64_t kind, bits, rank; intptr_t *strides; } input;
typedef struct { int64_t slot, replaces; view shape; } made;

typedef struct {
  int64_t inputs, slots, outputs, mades, steps, arena_size, heavy, running, blas, checked;
  int64_t *offsets, *hosts;  // where temporaries begin: in the arena (-1), or in the slot of a result
  int64_t error[4];          // code, value and limit; then how many work-items of a kernel are through
  input *input;
  made *made;
  view *output;
  int64_t *output_of;  // the entry of `made` that a result is as a whole, or -1
  step *step;
  void **memory;
  object **holder;
  slot *scalar;
  char *arena;
  int64_t *times;  // nanoseconds of each step of the last run, where they are wanted
  object *fail;
} program;

static const char PROGRAM[] = "tensorbus.program", EXECUTABLE[] = "tensorbus.executable";

static void *room(int64_t n, size_t size) { return calloc(n > 0 ? (size_t)n : 1, size); }
