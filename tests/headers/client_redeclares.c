// SPDX-License-Identifier: Apache-2.0
// A program that declares the object types itself, before the headers and after them. Compiled as
// C11 and C++11, with and without ACLNN_META.
#include <stdint.h>

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef int32_t aclnnStatus;
typedef void* aclrtStream;
typedef int aclError;

// With ACLNN_META the program owns OK as well; a second definition would not compile.
#if defined(ACLNN_META) && defined(__cplusplus)
constexpr aclnnStatus OK = 0;
#endif

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef int32_t aclnnStatus;

// Programs define the status names themselves, as constants or as macros.
static const aclnnStatus ACLNN_SUCCESS = 0;
#define ACLNN_ERR_PARAM_NULLPTR 161001
#define ACLNN_ERR_PARAM_INVALID 161002
#define ACLNN_ERR_RUNTIME_ERROR 361001
#define ACLNN_ERR_INNER 561000

// And the export macro, where they declare operators of their own.
#define ACLNN_API __attribute__((visibility("default")))

int redeclaring_client(const aclTensor* tensor, aclOpExecutor* executor);

int redeclaring_client(const aclTensor* tensor, aclOpExecutor* executor) {
  const aclnnStatus status = aclnnLayerNormBackward(0, 0, executor, 0);
  if (status == ACLNN_ERR_PARAM_NULLPTR || status == ACLNN_ERR_PARAM_INVALID) return status;
#ifdef __cplusplus
  if (status != OK) return status;
#endif
  return aclDestroyTensor(tensor) == ACLNN_SUCCESS ? ACL_SUCCESS : ACL_ERROR_FAILURE;
}
