#!/bin/sh
echo "=============" >&2
echo "== PyTorch ==" >&2
echo "=============" >&2
[ $# -gt 0 ] || set -- /bin/bash
exec "$@"
