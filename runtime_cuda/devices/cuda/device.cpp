#include "ckks/ring/device.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>

#include "atlasc/base/error.hpp"
#include "devices/cuda/cuda.hpp"
#include "devices/cuda/graph.hpp"

namespace atlasc::ckks {
namespace {

/// "13.0" of 13000.
std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

[[noreturn]] void too_little(std::uint64_t wanted, std::uint64_t there, const std::string& what) {
    throw Error("too little device memory for " + what,
                "it needs " + megabytes(wanted) + ", of which there are " + megabytes(there),
                "a larger device or budget, or compile with a smaller key-memory of --target");
}

/// A device that lacks a kernel: it was not built for it, or by a compiler newer than its driver.
bool lacks_kernels(cudaError_t status) {
    return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
           status == cudaErrorUnsupportedPtxVersion;
}

/// A device that a process gets no more results from: whatever it asks next fails too.
bool is_lost(cudaError_t status) {
    constexpr cudaError_t lost[] = {
        cudaErrorECCUncorrectable, cudaErrorIllegalAddress,
        cudaErrorLaunchTimeout, cudaErrorHardwareStackError, cudaErrorLaunchFailure,
        cudaErrorUnknown,
    };
    return std::find(std::begin(lost), std::end(lost), status) != std::end(lost);
}

std::string remedy_for(cudaError_t status) {
    if (lacks_kernels(status)) {
        return "build for this device (CMAKE_CUDA_ARCHITECTURES), a library too, by an nvcc that is "
               "no newer than its driver";
    }
    if (status == cudaErrorDevicesUnavailable) {
        return "end the process that has the device for itself (nvidia-smi lists it), or choose "
               "another device (CUDA_VISIBLE_DEVICES)";
    }
    return is_lost(status) ? "start again: this process gets no more results from the device; if it "
                             "happens again, see what the driver says (dmesg, nvidia-smi -q)"
                           : "";
}

}  // namespace

std::string device_facts() {
    // Asked once, by the first Memory: after some errors a device says nothing any more. Unchecked,
    // since `check` itself tells these facts.
    static const std::string facts = [] {
        int device = 0;
        int driver = 0;
        int runtime = 0;
        cudaDeviceProp has = {};  // "" and 0.0 where the device does not say
        cudaGetDevice(&device);
        cudaGetDeviceProperties(&has, device);
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        return std::string(has.name) + " of compute capability " + std::to_string(has.major) +
               "." + std::to_string(has.minor) + ", driver for CUDA " + version(driver) +
               ", CUDA runtime " + version(runtime);
    }();
    return facts;
}

std::vector<Device> devices() {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<Device> found;
    for (int number = 0; number < count; ++number) {
        cudaDeviceProp has = {};
        check(cudaGetDeviceProperties(&has, number), "cudaGetDeviceProperties");
        found.push_back({has.name, has.totalGlobalMem});
    }
    return found;
}

void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess) {
        return;
    }
    cudaGetLastError();  // an error that was reported is not reported again by the next check
    const std::string why = std::string(call) + ": " + cudaGetErrorName(status) + ", " +
                            cudaGetErrorString(status);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
        throw Error("there is no CUDA device", why,
                    "run on a machine with an NVIDIA GPU and its driver; a container or a unit of "
                    "systemd must be given both");
    }
    if (status == cudaErrorMemoryAllocation) {
        throw Error("too little device memory", why,
                    "a larger device, a smaller program, or end other processes on the device "
                    "(nvidia-smi lists them)");
    }
    throw Error(is_lost(status) ? "the CUDA device failed" : "CUDA failed",
                why + "; " + device_facts(), remedy_for(status));
}

cudaStream_t stream() {
    const Recording* recording = Recording::current();
    return recording != nullptr && recording->captures() ? recording->stream() : cudaStreamLegacy;
}

void synchronize() {
    require_no_capture("it waits for the device");
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

std::uint64_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    // What engines of this process let go stays in the pool, and the next one takes it from there.
    int device = 0;
    cudaMemPool_t pool = nullptr;
    std::uint64_t reserved = 0;
    std::uint64_t used = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
    check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
          "cudaMemPoolGetAttribute");
    check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used),
          "cudaMemPoolGetAttribute");
    return free + (reserved - used);
}

struct Memory::Pool {
    static constexpr std::size_t most_in_table = std::size_t{1} << 18;

    std::mutex mutex;  ///< over the sums
    std::mutex sending;  ///< over the next
    std::unique_ptr<Staging> staging;
};

Memory::~Memory() = default;

Memory::Memory(std::uint64_t budget) : budget_(budget), pool_(std::make_unique<Pool>()) {
    devices();
    device_facts();
    budget_ = budget == 0 ? free_bytes() : std::min(budget, free_bytes());
    // Memory that is let go stays in the pool: an allocation then costs microseconds.
    int device = 0;
    cudaMemPool_t pool = nullptr;
    std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept),
          "cudaMemPoolSetAttribute");
    pool_->staging = std::make_unique<Staging>(Pool::most_in_table);
}

void* Memory::allocate(std::size_t bytes) {
    Recording* const recording = Recording::current();
    if (recording != nullptr && recording->captures()) {
        return recording->block(bytes);
    }
    std::unique_lock<std::mutex> lock(pool_->mutex);
    if (used_ + bytes > budget_ && give_back_) {
        lock.unlock();  // what is given back is released
        give_back_();
        lock.lock();
    }
    if (used_ + bytes > budget_) {
        too_little(used_ + bytes, budget_, "a ciphertext or a key");
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    lock.unlock();
    void* pointer = nullptr;
    cudaError_t status = cudaMallocAsync(&pointer, bytes, stream());
    if (status == cudaErrorMemoryAllocation && give_back_) {
        cudaGetLastError();
        give_back_();
        synchronize();
        status = cudaMallocAsync(&pointer, bytes, stream());
    }
    if (status != cudaSuccess) {
        lock.lock();
        used_ -= bytes;
    }
    check(status, "cudaMallocAsync");
    if (recording != nullptr) {
        recording->allocated(pointer, bytes);
    }
    return pointer;
}

void* Memory::table(const void* host, std::size_t bytes) {
    Recording* const recording = Recording::current();
    if (recording != nullptr && recording->captures()) {
        return recording->table(host, bytes);
    }
    void* pointer = allocate(bytes);
    try {
        if (bytes > Pool::most_in_table) {
            upload(pointer, host, bytes);
        } else {
            const std::lock_guard<std::mutex> lock(pool_->sending);
            std::memcpy(pool_->staging->buffer(pointer), host, bytes);
            pool_->staging->upload(pointer, bytes);
        }
    } catch (...) {
        release(pointer, bytes);
        throw;
    }
    if (recording != nullptr) {
        recording->is_table(pointer, bytes);
    }
    return pointer;
}

void Memory::release(void* pointer, std::size_t bytes) noexcept {
    Recording* const recording = Recording::current();
    if (recording != nullptr && recording->captures() && recording->gives_back(pointer)) {
        return;
    }
    if (recording != nullptr) {
        recording->let_go(pointer);
    }
    // Nothing can be done where this fails; the next checked call reports the same error.
    cudaFreeAsync(pointer, cudaStreamLegacy);
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    used_ -= bytes;
}

std::uint64_t Memory::left() const {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    return budget_ - used_;
}

void Memory::require(std::uint64_t bytes, const char* what) const {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    if (used_ + bytes > budget_) {
        too_little(used_ + bytes, budget_, what);
    }
}

void overwrite(void* device, std::size_t bytes) noexcept {
    // Nothing can be done where this fails; the next checked call reports the same error.
    cudaMemsetAsync(device, 0, bytes, stream());
}

void upload(void* device, const void* host, std::size_t bytes) {
    require_no_capture("it copies to the device");
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()),
          "cudaMemcpyAsync to the device");
    synchronize();
}

void download(void* host, const void* device, std::size_t bytes) {
    require_no_capture("it copies from the device");
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()),
          "cudaMemcpyAsync from the device");
    synchronize();
}

struct Staging::Buffers {
    struct Buffer {
        void* host = nullptr;
        cudaEvent_t copied = nullptr;
    };

    explicit Buffers(std::size_t bytes) {
        for (Buffer& buffer : all) {
            check(cudaMallocHost(&buffer.host, bytes), "cudaMallocHost");
            check(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming),
                  "cudaEventCreateWithFlags");
        }
    }

    ~Buffers() {
        for (const Buffer& buffer : all) {
            if (buffer.copied != nullptr) {
                cudaEventSynchronize(buffer.copied);
                cudaEventDestroy(buffer.copied);
            }
            cudaFreeHost(buffer.host);
        }
    }

    std::array<Buffer, 8> all;  ///< page-locked
    std::size_t next = 0;
    std::size_t last = 0;
};

Staging::Staging(std::size_t bytes) : buffers_(std::make_unique<Buffers>(bytes)) {}

Staging::~Staging() = default;

void* Staging::buffer(void*) {
    require_no_capture("it copies to the device");
    buffers_->last = buffers_->next;
    buffers_->next = (buffers_->next + 1) % buffers_->all.size();
    const Buffers::Buffer& buffer = buffers_->all[buffers_->last];
    check(cudaEventSynchronize(buffer.copied), "cudaEventSynchronize");
    return buffer.host;
}

void Staging::upload(void* device, std::size_t bytes) {
    const Buffers::Buffer& buffer = buffers_->all[buffers_->last];
    check(cudaMemcpyAsync(device, buffer.host, bytes, cudaMemcpyHostToDevice, stream()),
          "cudaMemcpyAsync to the device");
    check(cudaEventRecord(buffer.copied, stream()), "cudaEventRecord");
}

void Staging::wipe_last(std::size_t bytes) {
    const Buffers::Buffer& buffer = buffers_->all[buffers_->last];
    check(cudaEventSynchronize(buffer.copied), "cudaEventSynchronize");
    wipe(buffer.host, bytes);
}

}  // namespace atlasc::ckks
