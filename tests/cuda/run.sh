#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, once: tests, the conformance kit, programs, the demo, the figures.
#
#   tests/cuda/run.sh [FOLDER]
#
# It installs tensorbus into .venv first, with CuPy and cuDNN for the driver's CUDA (CUDA=12 or 13 says which). PyTorch
# and others are compared with where they are installed there. PYTHON=... names a Python with all of that instead:
# nothing is installed then. FOLDER, seen from the repository's root (benchmarks/gpu), gets <date>-<card>.log with all
# that was said, .table.md with the figures and .json with the kit's report; each part has a time limit, and one that
# fails does not stop the next. QUICK=1 takes fewer dtypes. JOBS (one for each processor, as long as each has 2 GiB of
# the card) is how many processes share the card. PARTS names some of: versions tests kit programs demo figures opencl
# (the same card through its OpenCL, which has to be installed).
set -u -o pipefail
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON:-}" ]; then
  cuda=${CUDA:-$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:|]*Version: *\([0-9]*\).*/\1/p' | head -n 1)}
  [ "${cuda:-0}" -ge 12 ] || { echo "nvidia-smi shows no driver for CUDA 12 or later" >&2; exit 1; }
  [ "$cuda" -le 13 ] || cuda=13
  make install && .venv/bin/python -m pip install --disable-pip-version-check --quiet \
    -e "backends/cuda[cuda$cuda,cudnn$cuda]" || exit 1
  PYTHON=.venv/bin/python
fi
folder=${1:-benchmarks/gpu}
parts=${PARTS:-versions tests kit programs demo figures}
mkdir -p "$folder"
about='import tensorbus as tb; about = tb.Device("cuda").properties; print(about.memory >> 31 or 1, about.name)'
found=$("$PYTHON" -c "$about" 2>/dev/null) || {
  "$PYTHON" -c 'import tensorbus as tb; tb.device("cuda")'
  exit 1
}
card=${found#* } room=${found%% *} cores=$(nproc)
jobs=${JOBS:-$((cores < room ? cores : room))}
name=$(date +%F)-$(echo "$card" | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//')
log=$folder/$name.log
: >"$log"
failed=

part() { # name, seconds, command...
  case " $parts " in *" $1 "*) ;; *) return ;; esac
  local what=$1 limit=$2
  shift 2
  { echo; echo "== $what: $*"; } | tee -a "$log"
  if timeout "$limit" "$@" 2>&1 | tee -a "$log" | tail -n "${LINES_SHOWN:-15}"; then
    echo "== $what: done" | tee -a "$log"
  else
    echo "== $what: FAILED" | tee -a "$log"
    failed="$failed $what"
  fi
}

pytest=("$PYTHON" -m pytest -q -p no:cacheprovider -p no:benchmark)
workers=()
"$PYTHON" -c 'import xdist' 2>/dev/null && workers=(-n "$jobs")
quick=()
[ -n "${QUICK:-}" ] && quick=(--quick)

{ date -u +%FT%TZ; echo "$card"; } | tee -a "$log"
part versions 60 "$PYTHON" -c '
import platform, sys
from importlib.metadata import version, PackageNotFoundError
import tensorbus as tb
about = tb.Device("cuda").properties
print("Python", platform.python_version(), "|", about.name, "|", about.driver, "|", dict(about.extra))
for name in ("numpy", "torch", "jax", "nvidia-cudnn-frontend", "triton"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        print(name, "is not installed")
'
part tests 900 "${pytest[@]}" tests/cuda -m cuda
part kit 900 "${pytest[@]}" "${workers[@]}" --pyargs tensorbus_conformance --device cuda "${quick[@]}" \
  --report "$folder/$name.json"
part programs 900 "${pytest[@]}" "${workers[@]}" tests/programs --device cuda
part demo 300 "$PYTHON" examples/train_digits.py --device cuda --output "$folder/$name.png"
part demo 300 "$PYTHON" examples/train_digits.py --device cuda --compile --output "$folder/$name.png"
part figures 900 "$PYTHON" -m benchmarks.card --output "$folder/$name.table.md"
part figures 600 "$PYTHON" -m benchmarks.card_loops
part opencl 600 "${pytest[@]}" "${workers[@]}" --pyargs tensorbus_conformance --device opencl "${quick[@]}" \
  --report "$folder/$name.opencl.json"
part opencl 120 "$PYTHON" -m benchmarks.card_opencl --output "$folder/$name.opencl.md"
rm -f "$folder/$name.png"
[ -z "$failed" ] || { echo "failed:$failed; see $log" >&2; exit 1; }
