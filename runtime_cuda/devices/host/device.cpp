// The machine's own memory and processors as a device.
#include "ckks/ring/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "atlasc/base/error.hpp"
#include "atlasc/base/files.hpp"
#include "devices/host/vectors/cpu.hpp"
#include "src/base/system.hpp"

namespace atlasc::ckks {
namespace {

constexpr std::size_t alignment = 64;  ///< of a vector register, and of a line of the cache
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::uint64_t slack = 64;  ///< part by which blocks may exceed what was used at once

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void require_more(std::uint64_t used, std::uint64_t bytes, std::uint64_t budget,
                  const char* what) {
    if (used + bytes > budget) {
        throw Error(std::string("too little memory for ") + what,
                    "it needs " + megabytes(used + bytes) + ", of which there are " +
                        megabytes(budget),
                    "a larger machine or budget, or compile with a smaller key-memory of --target");
    }
}

std::size_t rounded(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/// Pages of their own, aligned to huge ones: what is let go goes back to the system at once, where a
/// heap would keep it in pieces. Null where there are none.
void* pages(std::size_t bytes) {
    auto* start = static_cast<char*>(system::map_pages(bytes + huge_page));
    if (start == nullptr) {
        return nullptr;
    }
    const std::size_t before =
        (huge_page - reinterpret_cast<std::uintptr_t>(start) % huge_page) % huge_page;
    if (before != 0) {
        system::unmap_pages(start, before);
    }
    system::unmap_pages(start + before + bytes, huge_page - before);
    system::prefer_large_pages(start + before, bytes);
    return start + before;
}

}  // namespace

std::string device_facts() {
    return std::string("a processor, kernels \"") + cpu_name() + "\"";
}

void synchronize() {}

/// Blocks that were let go: fresh ones cost page faults, which take longer than most of what is
/// computed in them. Large blocks are pages; what is wanted is cut off a free one, and joins its free
/// neighbours again.
struct Memory::Pool {
    std::mutex mutex;  ///< a ciphertext is let go by any thread
    std::multimap<std::size_t, void*> small;  ///< free blocks of less than a huge page, by size
    std::map<void*, std::size_t> sizes;       ///< of all small blocks
    std::map<char*, std::size_t> large;       ///< free large blocks, by place
    std::set<std::pair<std::size_t, char*>> by_size;  ///< the same by size
    std::uint64_t bytes = 0;                          ///< of all free ones

    ~Pool() { shrink(0); }

    /// A free block; null where none is large enough, or all small ones are much larger.
    void* take(std::size_t wanted) {
        if (wanted < huge_page) {
            const auto found = small.lower_bound(wanted);
            if (found == small.end() || found->first > wanted + wanted / 4) {
                return nullptr;
            }
            void* block = found->second;
            bytes -= found->first;
            small.erase(found);
            return block;
        }
        const std::size_t size = rounded(wanted, huge_page);
        const auto found = by_size.lower_bound({size, nullptr});
        if (found == by_size.end()) {
            return nullptr;
        }
        const auto [whole, block] = *found;
        remove(block, whole);
        if (whole > size) {
            add(block + size, whole - size);
        }
        return block;
    }

    void* make(std::size_t wanted) {
        if (wanted >= huge_page) {
            return pages(rounded(wanted, huge_page));
        }
        void* block = std::aligned_alloc(alignment, rounded(wanted, alignment));
        if (block != nullptr) {
            sizes[block] = wanted;
        }
        return block;
    }

    void give_back(void* block, std::size_t wanted) {
        if (wanted < huge_page) {
            const std::size_t size = sizes[block];
            small.emplace(size, block);
            bytes += size;
            return;
        }
        auto* place = static_cast<char*>(block);
        std::size_t size = rounded(wanted, huge_page);
        const auto after = large.lower_bound(place);
        if (after != large.end() && after->first == place + size) {
            size += after->second;
            remove(place + size - after->second, after->second);
        }
        const auto next = large.lower_bound(place);
        if (next != large.begin()) {
            const auto [before, length] = *std::prev(next);
            if (before + length == place) {
                remove(before, length);
                place = before;
                size += length;
            }
        }
        add(place, size);
    }

    /// Lets go of free blocks, the largest first and no more of it than it takes, until there are no
    /// more than so many bytes.
    void shrink(std::uint64_t most) {
        while (bytes > most && !by_size.empty()) {
            const auto [size, block] = *std::prev(by_size.end());
            const std::size_t gone = std::min<std::size_t>(size, rounded(bytes - most, huge_page));
            remove(block, size);
            system::unmap_pages(block + size - gone, gone);
            if (size > gone) {
                add(block, size - gone);
            }
        }
        while (bytes > most) {
            const auto largest = std::prev(small.end());
            bytes -= largest->first;
            sizes.erase(largest->second);
            std::free(largest->second);
            small.erase(largest);
        }
    }

private:
    void add(char* block, std::size_t size) {
        large.emplace(block, size);
        by_size.emplace(size, block);
        bytes += size;
    }

    void remove(char* block, std::size_t size) {
        large.erase(block);
        by_size.erase({size, block});
        bytes -= size;
    }
};

std::vector<Device> devices() { return {}; }

std::uint64_t free_bytes() { return 0; }

Memory::Memory(std::uint64_t budget)
    : budget_(std::min(budget == 0 ? system::available_bytes() : budget,
                       system::available_bytes())),
      pool_(std::make_unique<Pool>()) {}

Memory::~Memory() = default;

void* Memory::allocate(std::size_t bytes) {
    std::unique_lock<std::mutex> lock(pool_->mutex);
    if (used_ + bytes > budget_ && give_back_) {
        lock.unlock();  // what is given back is released
        give_back_();
        lock.lock();
    }
    require_more(used_, bytes, budget_, "a ciphertext or a key");
    void* block = pool_->take(bytes);
    if (block == nullptr) {
        // Used and free blocks together take little more than was used at once.
        const std::uint64_t most = std::max(peak_, used_ + bytes);
        pool_->shrink(most + most / slack - used_ - bytes);
        block = pool_->make(bytes);
    }
    if (block == nullptr) {
        throw Error("too little memory", megabytes(bytes) + " more cannot be had",
                    "a larger machine, or compile with a smaller key-memory of --target");
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return block;
}

void Memory::release(void* pointer, std::size_t bytes) noexcept {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    used_ -= bytes;
    pool_->give_back(pointer, bytes);
}

void* Memory::table(const void* host, std::size_t bytes) {
    void* block = allocate(bytes);
    std::memcpy(block, host, bytes);
    return block;
}

std::uint64_t Memory::left() const {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    return budget_ - used_;
}

void Memory::require(std::uint64_t bytes, const char* what) const {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    require_more(used_, bytes, budget_, what);
}

void overwrite(void* device, std::size_t bytes) noexcept { wipe(device, bytes); }

void upload(void* device, const void* host, std::size_t bytes) {
    std::memcpy(device, host, bytes);
}

void download(void* host, const void* device, std::size_t bytes) {
    std::memcpy(host, device, bytes);
}

struct Staging::Buffers {};

Staging::Staging(std::size_t) {}

Staging::~Staging() = default;

void* Staging::buffer(void* device) { return device; }

void Staging::upload(void*, std::size_t) {}

void Staging::wipe_last(std::size_t) {}

}  // namespace atlasc::ckks
