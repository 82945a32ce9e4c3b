// The part of the CUDA runtime that the engine uses, on the host: kernels run one thread after
// another, when they are launched. For tests of what is computed, on machines without a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "blocks.hpp"
#include "tally.hpp"

#define __host__
#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)

using std::rint;

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorHardwareStackError = 714,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorUnknown = 999,
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaMemPoolAttr {
    cudaMemPoolAttrReleaseThreshold = 4,
    cudaMemPoolAttrReservedMemCurrent = 5,
    cudaMemPoolAttrUsedMemCurrent = 7,
};
enum { cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaDeviceAttr { cudaDevAttrSingleToDoublePrecisionPerfRatio = 87 };

inline const cudaStream_t cudaStreamLegacy = nullptr;

struct dim3 {
    dim3(unsigned x = 1) : x(x) {}
    unsigned x;
};

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

inline thread_local dim3 blockIdx;
inline thread_local dim3 blockDim;
inline thread_local dim3 threadIdx;

namespace stand_in {

/// Errors of the next checks: of a launch, and of what was launched.
inline cudaError_t launched = cudaSuccess;
inline cudaError_t ran = cudaSuccess;

/// Whether ATLASC_STAND_IN is this: how a stand-in differs from a good device.
inline bool asked(const char* what) {
    const char* wanted = std::getenv("ATLASC_STAND_IN");
    return wanted != nullptr && std::strcmp(wanted, what) == 0;
}

/// Whether this device is lost: it is after as many launches as its file says, which lies in the
/// folder ATLASC_STAND_IN_LOST under its number, and stays lost for later processes.
inline bool lost(bool launches = false) {
    static long left = -1;
    const char* const folder = std::getenv("ATLASC_STAND_IN_LOST");
    const char* const device = std::getenv("CUDA_VISIBLE_DEVICES");
    if (folder == nullptr || device == nullptr) {
        return false;
    }
    const std::string place = std::string(folder) + "/" + device;
    std::ifstream file(place);
    if (!file) {
        left = -1;
    } else if (left < 0) {
        file >> left;
    } else if (launches && left > 0 && --left == 0) {
        std::ofstream(place) << 0;
    }
    return left == 0;
}

}  // namespace stand_in

#include "graphs.hpp"

inline cudaError_t cudaGetLastError() { return std::exchange(stand_in::launched, cudaSuccess); }
inline const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorNoKernelImageForDevice:
            return "cudaErrorNoKernelImageForDevice";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorDevicesUnavailable:
            return "cudaErrorDevicesUnavailable";
        case cudaErrorECCUncorrectable:
            return "cudaErrorECCUncorrectable";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        default:
            return "cudaErrorMemoryAllocation";
    }
}
inline const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorNoKernelImageForDevice:
            return "no kernel image is available for execution on the device";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorDevicesUnavailable:
            return "CUDA-capable device(s) is/are busy or unavailable";
        case cudaErrorECCUncorrectable:
            return "uncorrectable ECC error encountered";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
        default:
            return "out of memory";
    }
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const bool two = stand_in::asked("two") && (visible == nullptr || std::strlen(visible) > 1);
    *count = two ? 2 : 1;
    return stand_in::asked("none") ? cudaErrorNoDevice : cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
struct cudaDeviceProp {
    char name[256];
    int major;
    int minor;
    std::size_t totalGlobalMem;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* has, int) {
    *has = {"a stand-in", 9, 0, std::size_t{4} << 30};
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
    *value = stand_in::asked("consumer") ? 64 : 2;
    return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13010;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 12080;
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = *total = std::size_t{stand_in::asked("large") ? 80U : 4U} << 30;  // to count alone
    if (stand_in::lost()) {
        return cudaErrorECCUncorrectable;
    }
    return stand_in::asked("taken") ? cudaErrorDevicesUnavailable : cudaSuccess;
}
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    // Of a pool that keeps what it is given back: 3 of 4 MiB are free.
    const bool used = attribute == cudaMemPoolAttrUsedMemCurrent;
    *static_cast<std::uint64_t*>(value) = std::uint64_t{used ? 1U : 4U} << 20;
    return cudaSuccess;
}
inline cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
    if (stand_in::in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (stand_in::asked("full")) {
        return cudaErrorMemoryAllocation;
    }
    *pointer = std::malloc(bytes);
    if (!stand_in::tally().begun) {
        std::memset(*pointer, 0xa5, bytes);  // nothing may rely on zeros
    }
    return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
    stand_in::in_capture();
    std::free(pointer);
    return cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    *pointer = std::malloc(bytes);
    return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* pointer) {
    std::free(pointer);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t) {
    if (stand_in::in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    const std::lock_guard<std::recursive_mutex> lock(stand_in::device);
    if (stand_in::tally().begun) {
        stand_in::tally().add("copies", 1, static_cast<double>(bytes));
        if (kind != cudaMemcpyHostToDevice) {  // the tables of kernels, which traffic.hpp reads
            return cudaSuccess;
        }
    }
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
    if (stand_in::in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    const std::lock_guard<std::recursive_mutex> lock(stand_in::device);
    if (stand_in::tally().begun) {
        return cudaSuccess;
    }
    std::memset(to, value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
    if (stand_in::in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return stand_in::lost() ? cudaErrorECCUncorrectable : stand_in::ran;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

/// Threads of a block run one after another, phase by phase (`stand_in::run_blocks`).
inline void __syncthreads() {}

/// What a kernel reads and writes where traffic.hpp says nothing else: a number each for each index.
template <typename Kernel>
double traffic(const Kernel&, std::size_t count) {
    return 2.0 * sizeof(std::uint64_t) * static_cast<double>(count);
}

/// What it computes where arithmetic.hpp says nothing else: nothing that takes longer than its bytes.
template <typename Kernel>
stand_in::Arithmetic arithmetic(const Kernel&, std::size_t) {
    return {};
}

template <typename... Parameters, typename Function>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Function& function, std::size_t count) {
    const auto run = [kernel, function, count, grid = config->gridDim,
                      block = config->blockDim] {
        if (stand_in::tally().begun) {
            stand_in::tally().add(stand_in::name_of<Function>(), grid.x, traffic(function, count),
                                  arithmetic(function, count));
            return cudaSuccess;
        }
        if (stand_in::lost(true)) {
            return cudaErrorECCUncorrectable;
        }
        blockDim = block;
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {
                kernel(function, count);
            }
        }
        return cudaSuccess;
    };
    return stand_in::on(config->stream, run);
}

template <typename... Parameters, typename Function>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*)(Parameters...),
                               const Function& function) {
    const auto run = [function, blocks = config->gridDim.x, threads = config->blockDim.x] {
        if (stand_in::tally().begun) {
            stand_in::tally().add(stand_in::name_of<Function>(), blocks, traffic(function, blocks),
                                  arithmetic(function, blocks));
            return cudaSuccess;
        }
        if (stand_in::lost(true)) {
            return cudaErrorECCUncorrectable;
        }
        stand_in::run_blocks(blocks, threads, function);
        return cudaSuccess;
    };
    return stand_in::on(config->stream, run);
}
