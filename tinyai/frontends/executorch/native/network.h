/* How the back end calls a network: what a library exports, or an application links. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Inputs, outputs, an arena that is aligned to 64 bytes, and where times of layers go, if anywhere.
   Without inputs (NULL) it only answers. Returns 0, or -1 on a CPU without the code's instructions. */
typedef int32_t (*tinyai_entry)(
    const void* const* inputs,
    void* const* outputs,
    void* arena,
    int64_t* times);

/* A network of a C package that is linked into the application. */
typedef struct {
  const char* name;
  const char* hash; /* of the package */
  const char* signature; /* types in C and dimensions of inputs and outputs */
  tinyai_entry entry;
  int64_t arena_bytes;
  int32_t layers; /* whose times the entry tells: 0 where it cannot */
} tinyai_linked;

/* All of them, as tinyai.executorch.write_static writes them. */
extern const tinyai_linked tinyai_linked_networks[];
extern const int32_t tinyai_linked_count;

#ifdef __cplusplus
}
#endif
