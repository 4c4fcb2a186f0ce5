/* What a library for the AOT executor tells of itself. */
#ifndef TVM_RUNTIME_METADATA_TYPES_H_
#define TVM_RUNTIME_METADATA_TYPES_H_

#include <inttypes.h>
#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor that the network's function takes: name, shape of num_shape sizes, element type. */
struct TVMTensorInfo {
  const char *name;
  const int64_t *shape;
  int64_t num_shape;
  DLDataType dtype;
};

/* A constant at byte_offset of its pool: data_len bytes of a serialized array. */
struct TVMConstantInfo {
  const char *name_hint;
  int64_t byte_offset;
  int64_t data_len;
  const void *data_bytes;
};

/* The network: what it takes and gives, in the order of its function's arguments. */
struct TVMMetadata {
  int64_t version;
  const struct TVMTensorInfo *inputs;
  int64_t num_inputs;
  const struct TVMTensorInfo *outputs;
  int64_t num_outputs;
  const struct TVMTensorInfo *workspace_pools;
  int64_t num_workspace_pools;
  const struct TVMConstantInfo *constant_pools;
  int64_t num_constant_pools;
  const char *mod_name;
};

#ifdef __cplusplus
}
#endif

#endif
