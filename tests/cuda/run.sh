#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, once: tests, the conformance kit, programs, the demo, the figures.
#
#   tests/cuda/run.sh [FOLDER]
#
# It installs tensorbus into .venv first, with CuPy and cuDNN for the driver's CUDA (CUDA=12 or 13 says which). PyTorch
# and others are compared with where they are installed there. PYTHON=... names a Python with all of that instead:
# nothing is installed then. FOLDER, seen from the repository's root (benchmarks/gpu), gets <date>-<card>.log with all
# that was said, .table.md with the figures and .json with the kit's report; each part has a time limit, and one that
# fails does not stop the next. QUICK=1 takes fewer dtypes: all but the figures then fit into nine minutes with 16
# processors. JOBS (one for each processor, as long as each has 2 GiB of the card) is how many processes share the
# card; they need pytest-xdist. PARTS names some of: versions tests kit programs demo figures opencl (the same card
# through its OpenCL, which has to be installed). FIGURES names some of the groups of benchmarks.card.
set -u -o pipefail
cd "$(dirname "$0")/../.."
parts=${PARTS:-versions tests kit programs demo figures}
for part in $parts; do
  case $part in
    versions | tests | kit | programs | demo | figures | opencl) ;;
    *) echo "PARTS: '$part' is none of versions, tests, kit, programs, demo, figures, opencl" >&2; exit 2 ;;
  esac
done
if [ -z "${PYTHON:-}" ]; then
  cuda=${CUDA:-$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:|]*Version: *\([0-9]*\).*/\1/p' | head -n 1)}
  [ "${cuda:-0}" -ge 12 ] || { echo "nvidia-smi shows no driver for CUDA 12 or later" >&2; exit 1; }
  [ "$cuda" -le 13 ] || cuda=13
  make install && .venv/bin/python -m pip install --disable-pip-version-check --quiet \
    -e "backends/cuda[cuda$cuda,cudnn$cuda]" || exit 1
  PYTHON=.venv/bin/python
fi
folder=${1:-benchmarks/gpu}
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
[ -n "${PARTS:-}" ] || : >"$log" # some parts are added to what others said that day
failed=

part() { # name, seconds, command...
  case " $parts " in *" $1 "*) ;; *) return ;; esac
  local what=$1 limit=$2 start=$SECONDS end=done
  shift 2
  { echo; echo "== $what: $*"; } | tee -a "$log"
  timeout --kill-after=20 "$limit" "$@" 2>&1 | tee -a "$log" || end=FAILED failed="$failed $what"
  echo "== $what: $end after $((SECONDS - start)) s" | tee -a "$log"
}

# Settings are named because pytest would look for them beside the file that --report names. What workers need stands
# on the command line: tests/conftest.py takes PYTEST_ADDOPTS out of the environment.
pytest=("$PYTHON" -m pytest -c pyproject.toml -q --tb=short -p no:cacheprovider -p no:benchmark)
if "$PYTHON" -c 'import xdist' 2>/dev/null; then
  pytest+=(-n "$jobs" --dist worksteal)
else
  echo "pytest-xdist is not installed for $PYTHON: tests run one after the other, which takes long" >&2
fi
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
part tests 900 "${pytest[@]}" tests/cuda tests/nccl -m cuda
part kit 900 "${pytest[@]}" --pyargs tensorbus_conformance --device cuda "${quick[@]}" \
  --report "$folder/$name.json"
part programs 900 "${pytest[@]}" tests/programs --device cuda
part demo 300 "$PYTHON" examples/train_digits.py --device cuda --output "$folder/$name.png"
part demo 300 "$PYTHON" examples/train_digits.py --device cuda --compile --output "$folder/$name.png"
part figures 900 "$PYTHON" -m benchmarks.card --output "$folder/$name.table.md" ${FIGURES:-}
part figures 600 "$PYTHON" -m benchmarks.card_loops
part opencl 600 "${pytest[@]}" --pyargs tensorbus_conformance --device opencl "${quick[@]}" \
  --report "$folder/$name.opencl.json"
part opencl 120 "$PYTHON" -m benchmarks.card_opencl --output "$folder/$name.opencl.md"
rm -f "$folder/$name.png"
[ -z "$failed" ] || { echo "failed:$failed; see $log" >&2; exit 1; }
