# SPDX-License-Identifier: Apache-2.0
"""The C interface for scripts that compare it with PyTorch.

The libraries are taken from the folder that ACLGRAD_LIBRARY_DIR names. Tensors are torch CPU tensors
of any strides; they are passed by address, nothing is copied:

    import aclnn
    aclnn.call("aclnnEmbeddingDenseBackward", grad, indices, 4, 0, False, out)

raises aclnn.Error with the library's message when a phase or the synchronise fails. A script ends
with aclnn.main(...), which draws random problems, prints a summary line and sets the exit code.
"""
import argparse
import ctypes
import math
import os
import random
import sys

import torch

DTYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 6,
    torch.int64: 9,
    torch.float64: 11,
    torch.bool: 12,
    torch.complex64: 16,
    torch.complex128: 17,
    torch.bfloat16: 27,
}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FORMAT_ND = 2
REPEAT_INITIALIZE = 100002
DATA_ERROR = 507015

_libraries = {}


class Error(RuntimeError):
    """A refusal: the status, and the library's message as text."""

    def __init__(self, what, status):
        text = _library("ascendcl").aclGetRecentErrMsg()
        self.status = status
        self.message = text.decode() if text else ""
        super().__init__(f"{what} answered {status}: {self.message}")


def _load(name):
    folder = os.environ.get("ACLGRAD_LIBRARY_DIR")
    if not folder:
        sys.exit("ACLGRAD_LIBRARY_DIR must name the folder of libopapi.so")
    return ctypes.CDLL(os.path.join(folder, f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)


def _library(name):
    """libascendcl, libnnopbase or libopapi; the first use loads all and takes device 0."""
    if not _libraries:
        for each in ("ascendcl", "nnopbase", "opapi"):
            _libraries[each] = _load(each)
        runtime, base = _libraries["ascendcl"], _libraries["nnopbase"]
        runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
        for create in ("aclCreateTensor", "aclCreateIntArray", "aclCreateBoolArray"):
            getattr(base, create).restype = ctypes.c_void_p
        status = runtime.aclInit(None)
        if status not in (0, REPEAT_INITIALIZE):
            raise Error("aclInit", status)
        _require("aclrtSetDevice", runtime.aclrtSetDevice(ctypes.c_int32(0)))
    return _libraries[name]


def _require(what, status):
    if status != 0:
        raise Error(what, status)


def _int64s(values):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


class Tensor:
    """An aclTensor over a torch tensor's memory. `flipped` dimensions are described backwards, since
    torch has no negative strides: the operator then sees tensor.flip(flipped)."""

    def __init__(self, tensor, flipped=()):
        dims, strides = list(tensor.shape), list(tensor.stride())
        offset = tensor.storage_offset()
        if tensor.numel():
            for dim in flipped:
                offset += (dims[dim] - 1) * strides[dim]
                strides[dim] = -strides[dim]
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.element_size()
        self.tensor = tensor  # keeps the memory alive
        self.handle = _library("nnopbase").aclCreateTensor(
            _int64s(dims), ctypes.c_uint64(len(dims)), ctypes.c_int32(DTYPES[tensor.dtype]),
            _int64s(strides), ctypes.c_int64(offset), ctypes.c_int32(FORMAT_ND),
            _int64s([elements]), ctypes.c_uint64(1), ctypes.c_void_p(storage.data_ptr()))
        if not self.handle:
            raise Error("aclCreateTensor", None)

    def destroy(self):
        _require("aclDestroyTensor",
                 _library("nnopbase").aclDestroyTensor(ctypes.c_void_p(self.handle)))


class IntArray:
    """An aclIntArray of a list of numbers."""

    def __init__(self, values):
        self.handle = _library("nnopbase").aclCreateIntArray(
            _int64s(values), ctypes.c_uint64(len(values)))

    def destroy(self):
        _library("nnopbase").aclDestroyIntArray(ctypes.c_void_p(self.handle))


class BoolArray:
    """An aclBoolArray of a list of truth values."""

    def __init__(self, values):
        self.handle = _library("nnopbase").aclCreateBoolArray(
            (ctypes.c_bool * max(1, len(values)))(*values), ctypes.c_uint64(len(values)))

    def destroy(self):
        _library("nnopbase").aclDestroyBoolArray(ctypes.c_void_p(self.handle))


def _argument(value, owned):
    """The ctypes value of an argument of phase one; what had to be made for it goes to `owned`."""
    if isinstance(value, torch.Tensor):
        value = Tensor(value)
        owned.append(value)
    if isinstance(value, (list, tuple)):
        boolean = value and all(isinstance(item, bool) for item in value)
        value = BoolArray(value) if boolean else IntArray(value)
        owned.append(value)
    if isinstance(value, (Tensor, IntArray, BoolArray)):
        return ctypes.c_void_p(value.handle)
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return ctypes.c_uint64(value & (2**64 - 1))
    if isinstance(value, float):
        return ctypes.c_double(value)
    if isinstance(value, str):
        return ctypes.c_char_p(value.encode())
    raise TypeError(f"no C argument for {value!r}")


class Prepared:
    """A call with its arguments and workspace in place: run() makes both phases and synchronises.

    Arguments: torch tensors or Tensor, lists (arrays of int64 or, if all are bool, of bool), None,
    bool, int, float (a double), str."""

    def __init__(self, name, *arguments):
        self.name = name
        self.owned = []
        library = _library("opapi")
        self.phase_one = getattr(library, name + "GetWorkspaceSize")
        self.phase_two = getattr(library, name)
        self.synchronize = _library("ascendcl").aclrtSynchronizeStream
        self.workspace, self.workspace_size = ctypes.c_void_p(), 0
        self.size, self.executor = ctypes.c_uint64(), ctypes.c_void_p()
        self.arguments = [_argument(value, self.owned) for value in arguments]
        self.arguments += [ctypes.byref(self.size), ctypes.byref(self.executor)]

    def run(self):
        status = self.phase_one(*self.arguments)
        if status != 0:
            raise Error(self.name + "GetWorkspaceSize", status)
        if self.size.value > self.workspace_size:
            self._allocate(self.size.value)
        status = self.phase_two(self.workspace, self.size, self.executor, None)
        if status != 0:
            raise Error(self.name, status)
        status = self.synchronize(None)
        if status != 0:
            raise Error("aclrtSynchronizeStream", status)

    def _allocate(self, size):
        self._free()
        _require("aclrtMalloc", _library("ascendcl").aclrtMalloc(
            ctypes.byref(self.workspace), ctypes.c_size_t(size), ctypes.c_int(0)))
        self.workspace_size = size
        ctypes.memset(self.workspace, 0xFF, size)

    def _free(self):
        if self.workspace:
            _require("aclrtFree", _library("ascendcl").aclrtFree(self.workspace))
        self.workspace, self.workspace_size = ctypes.c_void_p(), 0

    def release(self):
        self._free()
        for each in self.owned:
            each.destroy()
        self.owned = []


def call(name, *arguments):
    """One call of an operator; see Prepared for the arguments."""
    prepared = Prepared(name, *arguments)
    try:
        prepared.run()
    finally:
        prepared.release()


# ---- Numbers ---------------------------------------------------------------------------------------


def ulp(exact, dtype):
    """Distance of neighbouring numbers of the dtype at each (double) element."""
    info = torch.finfo(dtype)
    least = round(math.log2(info.tiny))
    most = {torch.float32: 127, torch.float16: 15, torch.bfloat16: 127}[dtype]
    _, exponent = torch.frexp(exact)  # exact = m * 2^e, 0.5 <= m < 1
    exponent = torch.where(exact == 0, torch.full_like(exponent, least), exponent - 1)
    exponent = exponent.clamp(least, most)
    return torch.ldexp(torch.full_like(exact, info.eps), exponent)


def check(name, got, exact, magnitude, terms=0):
    """Asserts |got - exact| <= 0.5 ulp + 8 * 2^-24 * A + terms * 2^-149 for every element, NaN for
    NaN and Inf for Inf; A is `magnitude`. Returns the largest error in units of the tolerance."""
    dtype = got.dtype
    got, exact = got.to(torch.float64).reshape(-1), exact.to(torch.float64).reshape(-1)
    magnitude = magnitude.to(torch.float64).reshape(-1)
    if got.numel() == 0:
        return 0.0
    allowed = 0.5 * ulp(exact.nan_to_num(0.0), dtype) + 8 * 2.0**-24 * magnitude
    allowed = allowed + terms * 2.0**-149
    overflow = 2.0 * 2.0 ** {torch.float16: 15}.get(dtype, 127)
    finite = got.clamp(-overflow, overflow)  # Inf counts as the first number that is too large
    error = (finite - exact).abs()
    good = (error <= allowed) | (exact.isnan() & got.isnan()) | (exact == got)
    good |= exact.to(dtype).to(torch.float64) == got
    good &= (exact.isinf() == got.isinf()) | ~exact.isinf()
    # Where an FP32 intermediate may have overflowed nothing is promised.
    good |= exact.isfinite() & magnitude.isfinite() & (magnitude >= 2.0**127)
    if not bool(good.all()):
        wrong = (~good).nonzero().reshape(-1)
        i = int(wrong[0])
        raise AssertionError(
            f"{name}: {wrong.numel()} of {got.numel()} elements wrong; element {i} is {got[i]:.17g}, "
            f"exact {exact[i]:.17g}, off by {error[i]:.3g}, allowed {allowed[i]:.3g}")
    ratio = (error / allowed)[error.isfinite() & allowed.isfinite()]
    return float(ratio.max()) if ratio.numel() else 0.0


# ---- Random problems -------------------------------------------------------------------------------

ARRANGEMENTS = ("contiguous", "offset", "row_padded", "transposed", "inner_strided")


def empty(shape, dtype, arrangement="contiguous"):
    """A tensor of that shape whose elements lie in memory as the arrangement says. Elements and
    everything between them start as NaN (integers: -1, or true)."""
    shape = list(shape)
    filler = True if dtype == torch.bool else (float("nan") if dtype.is_floating_point else -1)
    if dtype == torch.uint8:
        filler = 255

    def full(dims):
        return torch.full(dims, filler, dtype=dtype)

    count = math.prod(shape)
    if arrangement == "offset":
        return full([count + 3])[3:].view(shape)
    if arrangement == "row_padded" and shape:
        return full(shape[:-1] + [shape[-1] + 5])[..., : shape[-1]]
    if arrangement == "transposed" and len(shape) >= 2:
        return full(shape[:-2] + [shape[-1], shape[-2]]).transpose(-1, -2)
    if arrangement == "inner_strided" and shape:
        return full(shape[:-1] + [2 * shape[-1]])[..., ::2]
    return full(shape)


def arranged(tensor, arrangement):
    """The same values in another arrangement."""
    return empty(tensor.shape, tensor.dtype, arrangement).copy_(tensor)


class Draw(random.Random):
    """Random choices for one problem, numbers included; a function of its seed alone."""

    def __init__(self, seed):
        super().__init__(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def arrangement(self):
        return self.choice(ARRANGEMENTS)

    def normal(self, shape, dtype, arrangement=None):
        values = torch.randn(list(shape), generator=self.generator, dtype=torch.float64)
        return arranged(values.to(dtype), arrangement or self.arrangement())

    def integers(self, low, high, shape, dtype, arrangement=None):
        """Numbers from low to high, both included."""
        values = torch.randint(low, high + 1, list(shape), generator=self.generator)
        return arranged(values.to(dtype), arrangement or self.arrangement())


def main(name, compare, count=60):
    """Draws `count` random problems: compare(draw) runs one and returns its largest error in units of
    the tolerance, or raises. Exits with 1 after a failure, which names the seed that repeats it."""
    parser = argparse.ArgumentParser(description=f"{name} against PyTorch in float64")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first problem")
    parser.add_argument("--count", type=int, default=count, help="number of problems")
    options = parser.parse_args()
    worst = 0.0
    for seed in range(options.seed, options.seed + options.count):
        try:
            worst = max(worst, compare(Draw(seed)) or 0.0)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{name}: {type(error).__name__}: {error}\nreplay: --seed {seed} --count 1")
            sys.exit(1)
    print(f"{name}: {options.count} random problems agree with PyTorch {torch.__version__} in float64;"
          f" largest error {worst:.2f} of the tolerance (seeds from {options.seed})")
