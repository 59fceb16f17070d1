// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Tensors, scalars, arrays, lists and executors: what operators are given. Exported by
 * libnnopbase.so.
 *
 * All objects are opaque handles. A handle that is dead, foreign or of another kind is refused
 * with 161002 and a message, whatever thread passes it; it is never dereferenced. Creating
 * functions return null and leave a message when they fail; it says so when the library's own
 * objects find no memory.
 *
 * Source: aclnn basic interface pages of the CANN operator reference ("public interfaces",
 * aclCreateTensor and following).
 */
#ifndef ACLGRAD_ACLNN_ACL_META_H_
#define ACLGRAD_ACLNN_ACL_META_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The object types. A program that declares them itself defines ACLNN_META first; repeating the
 * typedefs without it compiles as well.
 */
#ifndef ACLNN_META
#define ACLNN_META
typedef struct aclOpExecutor aclOpExecutor; /**< one planned call of an operator */
typedef struct aclTensor aclTensor;         /**< shape, strides, dtype, format and an address */
typedef struct aclScalar aclScalar;         /**< one host value with its dtype */
typedef struct aclIntArray aclIntArray;     /**< a host array of int64_t */
typedef struct aclFloatArray aclFloatArray; /**< a host array of float */
typedef struct aclBoolArray aclBoolArray;   /**< a host array of bool */
typedef struct aclTensorList aclTensorList; /**< an ordered list of tensors, which it owns */
typedef struct aclScalarList aclScalarList; /**< an ordered list of scalars, which it owns */

/** Status of the functions of this header and of all operators; 0 is success. */
typedef int32_t aclnnStatus;
#ifdef __cplusplus
constexpr aclnnStatus OK = 0;
#endif
#endif  // ACLNN_META

/* ---- Creating -------------------------------------------------------------------------------- */

/**
 * Describes a view of memory. The element with index i lies at element
 * offset + sum(i[k] * stride[k]) behind tensorData. The data is never touched here.
 *
 * @param viewDims        viewDimsNum sizes. Null only with viewDimsNum 0.
 * @param viewDimsNum     rank; 0 is a scalar. Over 2^20: null is returned. Operators take up to 8.
 * @param dataType        dtype of the elements; judged by the operator, not here.
 * @param stride          viewDimsNum strides in elements, 0 and negative ones included; null means
 *                        contiguous, last dimension fastest.
 * @param offset          of the view's first element, in elements of the storage.
 * @param format          layout tag; all base formats (ND, NCHW, NHWC, NCL, NCDHW, NDHWC, HWCN, NC,
 *                        UNDEFINED) are read as plain strided tensors.
 * @param storageDims     storageDimsNum sizes of the storage, often one flat dimension. Null only
 *                        with storageDimsNum 0.
 * @param storageDimsNum  0 says nothing about the storage. Over 2^20: null is returned.
 * @param tensorData      device address of the storage's first byte. Null for tensors without
 *                        elements, or when the address is set later.
 * @return the tensor, to be destroyed with aclDestroyTensor; null with a message for dims that are
 *         null with a count above 0, for a count over 2^20, and without memory. Ranks over 8,
 *         negative sizes and unknown dtypes are kept, and refused by the operator with 161002.
 *
 * Source: aclCreateTensor page.
 */
ACL_FUNC_VISIBILITY aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum,
                                               aclDataType dataType, const int64_t* stride,
                                               int64_t offset, aclFormat format,
                                               const int64_t* storageDims, uint64_t storageDimsNum,
                                               void* tensorData);

/**
 * Describes an existing tensor anew, in place: the handle stays, all nine properties change.
 *
 * @param tensor  the tensor; the other parameters are those of aclCreateTensor.
 * @return 0; 161001 tensor null, or dims null with a count above 0; 161002 dead handle or a count
 *         over 2^20. After a refusal the tensor is as before.
 *
 * Source: aclInitTensor page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims,
                                              uint64_t viewDimsNum, aclDataType dataType,
                                              const int64_t* stride, int64_t offset,
                                              aclFormat format, const int64_t* storageDims,
                                              uint64_t storageDimsNum, void* tensorData);

/**
 * Copies one host value of the given dtype.
 *
 * @param value     the value, dataType's size in bytes.
 * @param dataType  its dtype; one without a whole number of bytes is refused.
 * @return the scalar, to be destroyed with aclDestroyScalar; null with a message for a null value,
 *         a dtype without size, and without memory.
 *
 * Source: aclCreateScalar page.
 */
ACL_FUNC_VISIBILITY aclScalar* aclCreateScalar(void* value, aclDataType dataType);

/**
 * Copies a host array of integers.
 *
 * @param value  size values. Null, or size 0, makes a valid empty array.
 * @param size   number of values.
 * @return the array, to be destroyed with aclDestroyIntArray; null only without memory.
 *
 * Source: aclCreateIntArray page.
 */
ACL_FUNC_VISIBILITY aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);

/**
 * Copies a host array of floats; rules and result as for aclCreateIntArray.
 *
 * Source: aclCreateFloatArray page.
 */
ACL_FUNC_VISIBILITY aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size);

/**
 * Copies a host array of booleans; rules and result as for aclCreateIntArray.
 *
 * Source: aclCreateBoolArray page.
 */
ACL_FUNC_VISIBILITY aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size);

/**
 * Makes a list of tensors. The list owns its members: destroy the list only.
 *
 * @param value  size live tensors. Null, or size 0, makes a valid empty list.
 * @param size   number of tensors.
 * @return the list, to be destroyed with aclDestroyTensorList; null with a message for a member
 *         that is no live tensor, and without memory.
 *
 * Source: aclCreateTensorList page.
 */
ACL_FUNC_VISIBILITY aclTensorList* aclCreateTensorList(const aclTensor* const* value,
                                                       uint64_t size);

/**
 * Makes a list of scalars; rules and result as for aclCreateTensorList.
 *
 * Source: aclCreateScalarList page.
 */
ACL_FUNC_VISIBILITY aclScalarList* aclCreateScalarList(const aclScalar* const* value,
                                                       uint64_t size);

/* ---- Destroying ------------------------------------------------------------------------------ */

/**
 * Destroys a tensor; its device memory stays the program's. Allowed right after phase two, before
 * the stream is synchronised.
 *
 * @param tensor  null is allowed.
 * @return 0; 161002 for a handle that is dead, foreign or of another kind.
 *
 * Source: aclDestroyTensor page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensor(const aclTensor* tensor);

/** Destroys a scalar; null: 0, dead handle: 161002. Source: aclDestroyScalar page. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyScalar(const aclScalar* scalar);

/** Destroys an array; null: 0, dead handle: 161002. Source: aclDestroyIntArray page. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyIntArray(const aclIntArray* array);

/** Destroys an array; null: 0, dead handle: 161002. Source: aclDestroyFloatArray page. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyFloatArray(const aclFloatArray* array);

/** Destroys an array; null: 0, dead handle: 161002. Source: aclDestroyBoolArray page. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyBoolArray(const aclBoolArray* array);

/**
 * Destroys a list and the tensors in it; null: 0, dead handle: 161002.
 *
 * Source: aclDestroyTensorList page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensorList(const aclTensorList* array);

/**
 * Destroys a list and the scalars in it; null: 0, dead handle: 161002.
 *
 * Source: aclDestroyScalarList page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyScalarList(const aclScalarList* array);

/* ---- Reading --------------------------------------------------------------------------------- */

/**
 * Gives a copy of the view's sizes.
 *
 * @param tensor       the tensor.
 * @param viewDims     receives an array of *viewDimsNum values made with `new int64_t[]`; the
 *                     caller frees it with `delete[]`.
 * @param viewDimsNum  receives the rank.
 * @return 0; 161001 any pointer null; 161002 dead handle; 200000 no memory.
 *
 * Source: aclGetViewShape page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims,
                                                uint64_t* viewDimsNum);

/**
 * Gives a copy of the storage's sizes; ownership and status as for aclGetViewShape.
 *
 * Source: aclGetStorageShape page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                                                   uint64_t* storageDimsNum);

/**
 * Gives a copy of the view's strides in elements, the contiguous ones where none were given;
 * ownership and status as for aclGetViewShape.
 *
 * Source: aclGetViewStrides page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                                                  uint64_t* stridesNum);

/**
 * Gives the view's offset in elements.
 *
 * @return 0; 161001 tensor or offset null; 161002 dead handle.
 *
 * Source: aclGetViewOffset page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset);

/** Gives the format tag; status as for aclGetViewOffset. Source: aclGetFormat page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format);

/** Gives the dtype; status as for aclGetViewOffset. Source: aclGetDataType page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType);

/**
 * Gives the number of values.
 *
 * @return 0; 161001 array or size null; 161002 dead handle.
 *
 * Source: aclGetIntArraySize page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size);

/** As aclGetIntArraySize. Source: aclGetFloatArraySize page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size);

/** As aclGetIntArraySize. Source: aclGetBoolArraySize page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size);

/** Number of tensors; status as for aclGetIntArraySize. Source: aclGetTensorListSize page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList,
                                                     uint64_t* size);

/** Number of scalars; status as for aclGetIntArraySize. Source: aclGetScalarListSize page. */
ACL_FUNC_VISIBILITY aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList,
                                                     uint64_t* size);

/* ---- Addresses ------------------------------------------------------------------------------- */

/**
 * Changes the address of a tensor's storage. Takes effect in every phase two called later, also
 * of executors planned before.
 *
 * @param tensor  the tensor.
 * @param addr    device address; null only for tensors without elements.
 * @return 0; 161001 tensor null; 161002 dead handle.
 *
 * Source: aclSetRawTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr);

/**
 * Gives the address of a tensor's storage.
 *
 * @return 0; 161001 tensor or addr null; 161002 dead handle.
 *
 * Source: aclGetRawTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr);

/* ---- Executors ------------------------------------------------------------------------------- */

/**
 * Makes an executor repeatable: phase two may run it any number of times, and the program destroys
 * it. To be called between phase one and the first phase two; once more before that changes
 * nothing.
 *
 * @return 0; 561103 executor null; 561000 executor was run (also one that is repeatable already),
 *         destroyed or foreign.
 *
 * Source: aclSetAclOpExecutorRepeatable page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);

/**
 * Destroys an executor that was not used yet or is repeatable; its tensors may be gone already.
 *
 * @return 0; 561103 executor null; 561000 executor spent by a run, destroyed or foreign.
 *
 * Source: aclDestroyAclOpExecutor page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);

/**
 * Changes the address of an input of an executor, and of the tensor itself. Every phase two called
 * later reads it: all of a repeatable executor, the only one of another.
 *
 * @param executor  a repeatable executor, or one that was not run yet.
 * @param index     position among the operator's tensor inputs, from 0; an optional input that is
 *                  absent keeps its number.
 * @param tensor    the tensor that phase one was given there.
 * @param addr      the new device address.
 * @return 0; 561103 executor or tensor null; 161002 executor spent by its run, dead handle, index
 *         out of range, or another tensor bound there.
 *
 * Source: aclSetInputTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index,
                                                      aclTensor* tensor, void* addr);

/**
 * As aclSetInputTensorAddr; index counts the operator's tensor outputs from 0.
 *
 * Source: aclSetOutputTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index,
                                                       aclTensor* tensor, void* addr);

/**
 * As aclSetInputTensorAddr; index counts inputs and outputs together, inputs first.
 *
 * Source: aclSetTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index,
                                                 aclTensor* tensor, void* addr);

/**
 * Changes the address of one tensor of a list that is an input of an executor.
 *
 * @param executor       a repeatable executor, or one that was not run yet.
 * @param irIndex        position of the list among the operator's inputs, from 0.
 * @param relativeIndex  position of the tensor in the list, from 0.
 * @param tensors        the list that phase one was given there.
 * @param addr           the new device address.
 * @return 0; 561103 executor or tensors null; 161002 dead handle, an index out of range, or another
 *         list bound there.
 *
 * Source: aclSetDynamicInputTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor,
                                                             size_t irIndex,
                                                             const size_t relativeIndex,
                                                             aclTensorList* tensors, void* addr);

/**
 * As aclSetDynamicInputTensorAddr; irIndex counts the operator's outputs from 0.
 *
 * Source: aclSetDynamicOutputTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor,
                                                              size_t irIndex,
                                                              const size_t relativeIndex,
                                                              aclTensorList* tensors, void* addr);

/**
 * As aclSetDynamicInputTensorAddr; irIndex counts inputs and outputs together, inputs first.
 *
 * Source: aclSetDynamicTensorAddr page.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                                        const size_t relativeIndex,
                                                        aclTensorList* tensors, void* addr);

/* The same six functions under their older names. */

/** Alias of aclSetInputTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index,
                                                      aclTensor* tensor, void* addr);
/** Alias of aclSetOutputTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index,
                                                       aclTensor* tensor, void* addr);
/** Alias of aclSetTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index,
                                                 aclTensor* tensor, void* addr);
/** Alias of aclSetDynamicInputTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor,
                                                             size_t irIndex,
                                                             const size_t relativeIndex,
                                                             aclTensorList* tensors, void* addr);
/** Alias of aclSetDynamicOutputTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor,
                                                              size_t irIndex,
                                                              const size_t relativeIndex,
                                                              aclTensorList* tensors, void* addr);
/** Alias of aclSetDynamicTensorAddr. Source: "aliases" page of the basic interfaces. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                                        const size_t relativeIndex,
                                                        aclTensorList* tensors, void* addr);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNN_ACL_META_H_
