// What polynomials lie in and are computed on. Folders of devices/ implement it; one of them is
// compiled in, with its kernel.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atlasc/backend.hpp"

namespace atlasc::ckks {

/// What computes, for messages: the device, and the versions of its software.
std::string device_facts();

/// See Backend.
std::vector<Device> devices();
std::uint64_t free_bytes();

/// Waits for all that the device was asked to do; errors that were found meanwhile are thrown here.
void synchronize();

/// The device's memory, never more than a budget. It lives as long as what was allocated from it, so
/// that a ciphertext may outlive its engine.
class Memory : public std::enable_shared_from_this<Memory> {
public:
    /// Throws Error: there is no device. `budget` in bytes; 0: as much as is free.
    explicit Memory(std::uint64_t budget);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    /// Throws Error: the budget or the device is too small.
    void* allocate(std::size_t bytes);
    void release(void* pointer, std::size_t bytes) noexcept;

    /// Allocates and fills what a kernel reads beside its arguments. The host's numbers may change
    /// afterwards, and the host does not wait for the device: a program has hundreds of such tables.
    void* table(const void* host, std::size_t bytes);

    /// Called where the budget does not suffice: gives back what can be had again.
    void on_pressure(std::function<void()> give_back) { give_back_ = std::move(give_back); }

    std::uint64_t budget() const { return budget_; }
    std::uint64_t used() const { return used_; }
    /// Of the budget.
    std::uint64_t left() const;
    std::uint64_t peak() const { return peak_; }

    /// Throws Error where `bytes` more, for `what`, cannot fit.
    void require(std::uint64_t bytes, const char* what) const;

private:
    struct Pool;

    std::uint64_t budget_;
    std::uint64_t used_ = 0;
    std::uint64_t peak_ = 0;
    std::function<void()> give_back_;
    std::unique_ptr<Pool> pool_;
};

/// Zeros in place of a secret, behind what the device was asked to do already; no compiler leaves
/// it out.
void overwrite(void* device, std::size_t bytes) noexcept;

/// Uninitialised elements on the device.
template <typename T>
class Array {
public:
    Array() = default;
    Array(Memory& memory, std::size_t size)
        : memory_(memory.shared_from_this()),
          size_(size),
          data_(static_cast<T*>(memory.allocate(size * sizeof(T)))) {}
    /// As `Memory::table`.
    Array(Memory& memory, const std::vector<T>& host)
        : memory_(memory.shared_from_this()),
          size_(host.size()),
          data_(static_cast<T*>(memory.table(host.data(), host.size() * sizeof(T)))) {}
    Array(Array&& other) noexcept
        : memory_(std::move(other.memory_)),
          size_(std::exchange(other.size_, 0)),
          secret_(other.secret_),
          data_(std::exchange(other.data_, nullptr)) {}
    Array& operator=(Array&& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(size_, other.size_);
        std::swap(secret_, other.secret_);
        std::swap(data_, other.data_);
        return *this;
    }
    ~Array() {
        if (data_ != nullptr) {
            if (secret_) {
                overwrite(data_, bytes());
            }
            memory_->release(data_, size_ * sizeof(T));
        }
    }

    T* get() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return size_ * sizeof(T); }

    /// From now on: what it holds is overwritten before the memory is let go, since the pool would
    /// keep it, and give it to the next array as it is.
    void make_secret() { secret_ = true; }

private:
    std::shared_ptr<Memory> memory_;
    std::size_t size_ = 0;
    bool secret_ = false;
    T* data_ = nullptr;
};

template <typename T>
Array<T> as_secret(Array<T> array) {
    array.make_secret();
    return array;
}

/// To the device, behind what it was asked to do already; the host's numbers may change afterwards.
void upload(void* device, const void* host, std::size_t bytes);

/// From the device; waits for it.
void download(void* host, const void* device, std::size_t bytes);

template <typename T, typename Allocator>
Array<T> uploaded(Memory& memory, const std::vector<T, Allocator>& host) {
    Array<T> array(memory, host.size());
    upload(array.get(), host.data(), array.bytes());
    return array;
}

template <typename T>
std::vector<T> downloaded(const T* device, std::size_t size) {
    std::vector<T> host(size);
    download(host.data(), device, size * sizeof(T));
    return host;
}

/// Buffers in turn, through which copies to the device need no waiting. They are where a device reads
/// them fastest, and are written in place.
class Staging {
public:
    explicit Staging(std::size_t bytes);
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging();

    /// Where the next bytes for `device` are to be written; on the host that is `device` itself.
    void* buffer(void* device);
    /// Copies what was written there, at most the bytes of one buffer.
    void upload(void* device, std::size_t bytes);
    /// Waits for the last copy, and wipes its buffer.
    void wipe_last(std::size_t bytes);

private:
    struct Buffers;

    std::unique_ptr<Buffers> buffers_;
};

}  // namespace atlasc::ckks
