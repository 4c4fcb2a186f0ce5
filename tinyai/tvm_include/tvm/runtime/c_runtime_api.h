/* What generated C needs of TVM's runtime: the values of a packed function, errors, calls. */
#ifndef TVM_RUNTIME_C_RUNTIME_API_H_
#define TVM_RUNTIME_C_RUNTIME_API_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

/* Generated functions are looked up by name in the library, so they stay visible. */
#if defined(TVM_DLL)
/* the user's own */
#elif defined(_WIN32)
#define TVM_DLL __declspec(dllexport)
#elif defined(__GNUC__)
#define TVM_DLL __attribute__((visibility("default")))
#else
#define TVM_DLL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What an argument is. The codes below kTVMOpaqueHandle are those of DLDataTypeCode. */
typedef enum {
  kTVMArgInt = 0,
  kTVMArgFloat = 2,
  kTVMOpaqueHandle = 3,
  kTVMNullptr = 4,
  kTVMDataType = 5,
  kDLDevice = 6,
  kTVMDLTensorHandle = 7,
  kTVMObjectHandle = 8,
  kTVMModuleHandle = 9,
  kTVMPackedFuncHandle = 10,
  kTVMStr = 11,
  kTVMBytes = 12,
  kTVMNDArrayHandle = 13,
  kTVMObjectRValueRefArg = 14
} TVMArgTypeCode;

/* One argument; its type code says which member counts. */
typedef union {
  int64_t v_int64;
  double v_float64;
  void *v_handle;
  const char *v_str;
  DLDataType v_type;
  DLDevice v_device;
} TVMValue;

typedef struct {
  const char *data;
  size_t size;
} TVMByteArray;

typedef int64_t tvm_index_t;
typedef DLDevice TVMDevice;
typedef DLTensor *TVMArrayHandle;
typedef void *TVMFunctionHandle;
typedef void *TVMModuleHandle;

/* Functions that return int: 0 is success, else TVMGetLastError says why. */
TVM_DLL void TVMAPISetLastError(const char *message);
TVM_DLL const char *TVMGetLastError(void);
TVM_DLL int TVMFuncCall(TVMFunctionHandle func, TVMValue *args, int *type_codes, int num_args,
                        TVMValue *ret_value, int *ret_type_code);
TVM_DLL int TVMFuncGetGlobal(const char *name, TVMFunctionHandle *out);
TVM_DLL int TVMFuncFree(TVMFunctionHandle func);
TVM_DLL int TVMArrayFree(TVMArrayHandle array);

#ifdef __cplusplus
}
#endif

#endif
