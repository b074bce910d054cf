// What the kernels of attention on tensor cores use beside cuda_host.h: each thread makes its own elements of products
// from tiles in shared memory, and is shown the weights of its neighbours.
struct ushort4 { unsigned short x, y, z, w; };
static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) {
  return {x, y, z, w};
}
static inline int min(int a, int b) { return a < b ? a : b; }
static inline bool __any_sync(unsigned int, bool) { return true; }
alignas(1024) static unsigned char tb_of_block[232448];

static inline unsigned int tb_shared_address(const void *p) { return (unsigned int)((const unsigned char *)p - tb_of_block); }
static inline void tb_copy16(unsigned int to, const void *from, bool there) {
  if (to % 16 || (there && (size_t)from % 16)) tb_wrong = "16 bytes begin where no card could copy them";
  if (there) memcpy(tb_of_block + to, from, 16); else memset(tb_of_block + to, 0, 16);
}
static inline void tb_copy4(void *to, const void *from, bool there) {
  if (there) memcpy(to, from, 4); else memset(to, 0, 4);
}
static inline void tb_commit() {}
static inline void tb_arrived() { __syncthreads(); }
static inline float tb_exp2(float x) { return exp2f(x); }
static inline unsigned short tb_narrowed(float x) {
  if (sizeof TB_KIND == 4) return tb_bits<unsigned short>((_Float16)x);
  const unsigned int bits = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static inline float tb_to_float(unsigned short x) {
  return sizeof TB_KIND == 4 ? (float)tb_bits<_Float16>(x) : __uint_as_float((unsigned int)x << 16);
}
static inline unsigned int tb_pair(float low, float high) {
  return tb_narrowed(low) | (unsigned int)tb_narrowed(high) << 16;
}
