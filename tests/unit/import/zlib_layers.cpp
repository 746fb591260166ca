// What AArch64 has, compiled here.
#include "hooks/import/decompressor.cpp"
#include "hooks/import/inflater_zlib.cpp"
