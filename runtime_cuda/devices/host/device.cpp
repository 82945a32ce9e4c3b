// The machine's own memory and processors as a device.
#include "ckks/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "atlasc/error.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t alignment = 64;  ///< of a vector register, and of a line of the cache

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

/// What the kernel could give without swapping; without limit where it does not say.
std::uint64_t available_bytes() {
    std::ifstream facts("/proc/meminfo");
    for (std::string name, unit; facts >> name;) {
        std::uint64_t kilobytes = 0;
        facts >> kilobytes;
        std::getline(facts, unit);
        if (name == "MemAvailable:") {
            return kilobytes << 10;
        }
    }
    return std::numeric_limits<std::uint64_t>::max();
}

/// Sizes of blocks: eight between a power of two and the next, so that a block serves for others.
std::size_t rounded(std::size_t bytes) {
    std::size_t step = alignment;
    while (bytes / step >= 16) {
        step *= 2;
    }
    return (bytes + step - 1) / step * step;
}

}  // namespace

void synchronize() {}

/// Blocks that were let go, by size: fresh ones cost a page fault for every 4 KiB.
struct Memory::Pool {
    std::multimap<std::size_t, void*> free;
    std::uint64_t bytes = 0;

    ~Pool() { clear(); }

    void clear() {
        for (const auto& [size, block] : free) {
            std::free(block);
        }
        free.clear();
        bytes = 0;
    }
};

Memory::Memory(std::uint64_t budget)
    : budget_(std::min(budget == 0 ? available_bytes() : budget, available_bytes())),
      pool_(std::make_unique<Pool>()) {}

Memory::~Memory() = default;

void* Memory::allocate(std::size_t bytes) {
    bytes = rounded(bytes);
    if (used_ + bytes > budget_ && give_back_) {
        give_back_();
    }
    require(bytes, "a ciphertext or a key");
    void* block = nullptr;
    const auto kept = pool_->free.find(bytes);
    if (kept != pool_->free.end()) {
        block = kept->second;
        pool_->bytes -= bytes;
        pool_->free.erase(kept);
    } else {
        if (used_ + pool_->bytes + bytes > budget_) {
            pool_->clear();
        }
        block = std::aligned_alloc(alignment, bytes);
        if (block == nullptr) {
            throw Error("too little memory", megabytes(bytes) + " more cannot be had",
                        "a larger machine, or compile with a smaller --key-memory");
        }
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return block;
}

void Memory::release(void* pointer, std::size_t bytes) noexcept {
    bytes = rounded(bytes);
    used_ -= bytes;
    pool_->free.emplace(bytes, pointer);
    pool_->bytes += bytes;
}

void Memory::require(std::uint64_t bytes, const char* what) const {
    if (used_ + bytes > budget_) {
        throw Error(std::string("too little memory for ") + what,
                    "it needs " + megabytes(used_ + bytes) + ", of which there are " +
                        megabytes(budget_),
                    "a larger machine or budget, or compile with a smaller --key-memory");
    }
}

void upload(void* device, const void* host, std::size_t bytes) {
    std::memcpy(device, host, bytes);
}

void download(void* host, const void* device, std::size_t bytes) {
    std::memcpy(host, device, bytes);
}

struct Staging::Buffers {};

Staging::Staging(std::size_t) {}

Staging::~Staging() = default;

void Staging::upload(void* device, const void* host, std::size_t bytes) {
    std::memcpy(device, host, bytes);
}

}  // namespace atlasc::ckks
