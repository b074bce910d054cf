"""The products of warpgroups as text: an instruction names each of its sums, so each width has its own."""

from __future__ import annotations

from collections.abc import Iterable

_STRUCT = """\
template <> struct tb_wgmma<{n}> {{
  static __device__ __forceinline__ void of_tiles(float (&c)[{eighths}][4], unsigned long long a,
                                                  unsigned long long b, int adds) {{
    asm volatile("{{\\n .reg .pred p;\\n setp.ne.b32 p, %{after2}, 0;\\n"
                 " wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{sums}}}, %{after0},"
                 " %{after1}, p, 1, 1, 0, 0;\\n}}"
                 : {outputs}
                 : "l"(a), "l"(b), "r"(adds));
  }}
  static __device__ __forceinline__ void of_weights(float (&c)[{eighths}][4], const unsigned int (&a)[4],
                                                    unsigned long long b) {{
    asm volatile("{{\\n .reg .pred p;\\n setp.eq.u32 p, 0, 0;\\n"
                 " wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{sums}}}, {{%{after0},"
                 " %{after1}, %{after2}, %{after3}}}, %{after4}, p, 1, 1, 1;\\n}}"
                 : {outputs}
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }}
}};
"""


def products(widths: Iterable[int], kind: str) -> str:
    """Return ``tb_wgmma<N>`` for each width, a multiple of 8 up to 256, of operands ``"bf16"`` or ``"f16"``.

    Both functions add: ``of_tiles`` the product of 64 rows and N rows, 16 elements of each, which tiles in
    shared memory have; ``of_weights`` that of weights in registers and 16 rows of N elements.
    """
    lines = ["template <int N> struct tb_wgmma;\n"]
    for n in sorted(set(widths)):
        count = n // 2
        after = {f"after{k}": count + k for k in range(5)}
        lines.append(
            _STRUCT.format(
                n=n, kind=kind, eighths=n // 8, sums=", ".join(f"%{k}" for k in range(count)),
                outputs=", ".join(f'"+f"(c[{k // 4}][{k % 4}])' for k in range(count)), **after,
            )
        )  # fmt: skip
    return "".join(lines)
