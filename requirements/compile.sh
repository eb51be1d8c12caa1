#!/usr/bin/env bash
# Writes requirements/lock.txt: the exact versions of all extras and developers' tools for Python 3.11 on Linux.
# PyTorch, with the packages of its CUDA build, is left out: each machine installs the build that suits it first.
set -euo pipefail
cd "$(dirname "$0")/.."
pytorch=$(sed -n 's/^# torch==//p' requirements/lock.txt 2> /dev/null || true)
pytorch=${1:-${pytorch:-2.13.0}}
left_out=(torch triton cuda-bindings cuda-pathfinder cuda-toolkit)
left_out+=(nvidia-{cublas,cuda-cupti,cuda-nvrtc,cuda-runtime,cudnn-cu13,cufft,cufile,curand,cusolver,cusparse})
left_out+=(nvidia-{cusparselt-cu13,nccl-cu13,nvjitlink,nvshmem-cu13,nvtx})
uv pip compile pyproject.toml --all-extras --group dev --python-version 3.11 \
    --python-platform x86_64-unknown-linux-gnu --constraints <(echo "torch==$pytorch") \
    --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade --quiet \
    "${left_out[@]/#/--no-emit-package=}" --output-file requirements/locked.txt
{ echo "# Made by requirements/compile.sh, to be installed after"; echo "# torch==$pytorch"; cat requirements/locked.txt; } > requirements/lock.txt
rm requirements/locked.txt
