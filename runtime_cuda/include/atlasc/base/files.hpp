// Plain files, read through one descriptor; what is random and what is secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace atlasc {

using Bytes = std::vector<std::uint8_t>;

/// Who may read a file: those whom the user's mask lets, or its owner alone.
enum class Access { shared, secret };

/// An open file of the system, closed at the end.
class Descriptor {
public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    int number() const { return number_; }
    bool open() const { return number_ >= 0; }

    /// Gives it up unclosed.
    int release();

private:
    int number_;
};

/// Refuse (Error) an open file that is no plain one or, where it is secret, is not the user's own;
/// its size.
std::uint64_t checked_size(const Descriptor& file, const std::string& path, Access access);

/// A file that is open for reading.
class PlainFile {
public:
    /// Throws Error: there is none, or it is a link, a pipe or a device.
    PlainFile(const std::string& path);  // NOLINT: a path stands for its file
    PlainFile(const char* path) : PlainFile(std::string(path)) {}  // NOLINT

    /// Bytes that are in memory, under a name for errors, such as "the query".
    PlainFile(std::string name, Bytes content);

    /// The same of bytes that somebody else keeps as long as this lives: a mapping of a file.
    static PlainFile view(std::string name, const std::uint8_t* data, std::size_t size);

    /// Empty of bytes that came from no file.
    const std::string& path() const { return path_; }

    /// As errors call it.
    const std::string& name() const { return name_; }
    std::uint64_t size() const { return size_; }

    /// Refuse (Error) a file that others than the user may read.
    void require_secret() const;

    /// Read all of it into memory, if it is not there yet: whoever changes the file then changes nothing
    /// of what is read. Throws Error also for more than `most` bytes.
    void hold(std::uint64_t most);

    /// Fill `size` bytes from a position on. Throws Error.
    void read(std::uint64_t at, void* to, std::size_t size) const;

private:
    PlainFile() = default;

    std::string path_;
    std::string name_;
    Descriptor descriptor_;  ///< of what is not
    std::uint64_t size_ = 0;
    Bytes held_;
    const std::uint8_t* data_ = nullptr;  ///< of what is in memory
};

/// Write all bytes to an open file. Throws Error that names the path and the cause.
void write_all(const Descriptor& file, const std::string& path, const void* data, std::size_t size);

/// The error that the last call of the system left, as "cannot write to PATH".
[[noreturn]] void fail_writing(const std::string& path);

/// The folder that a path lies in.
std::string folder_of(const std::string& path);

/// Let this process leave no core dump, because its memory holds a secret key. Without privileges no
/// debugger can attach to it then, either.
void forbid_core_dumps();

/// Bytes of the system's generator of random numbers.
void random_bytes(void* to, std::size_t size);

/// 128 random bits as hexadecimal digits.
std::string random_identity();

/// Two digits for each byte.
std::string hexadecimal(const std::uint8_t* bytes, std::size_t size);

/// Whether a text has that many hexadecimal digits, lower case, and nothing else.
bool is_hexadecimal(const std::string& text, std::size_t digits);

/// Overwrite what was secret, in a way that no compiler leaves out.
void wipe(void* bytes, std::size_t size);

template <typename Container>
void wipe(Container& container) {
    wipe(container.data(), container.size() * sizeof *container.data());
}

/// A value that is wiped at its end.
template <typename T>
struct Secret {
    static_assert(std::is_trivially_copyable_v<T>);

    ~Secret() { wipe(&value, sizeof value); }

    T value;
};

/// Wipes memory before it is freed: also what a vector leaves behind when it grows, or when an error
/// ends it.
template <typename T>
struct WipingAllocator {
    using value_type = T;

    WipingAllocator() = default;
    template <typename Other>
    explicit WipingAllocator(const WipingAllocator<Other>&) {}

    T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
    void deallocate(T* memory, std::size_t count) {
        wipe(memory, count * sizeof(T));
        std::allocator<T>().deallocate(memory, count);
    }

    friend bool operator==(const WipingAllocator&, const WipingAllocator&) { return true; }
    friend bool operator!=(const WipingAllocator&, const WipingAllocator&) { return false; }
};

template <typename T>
using SecretVector = std::vector<T, WipingAllocator<T>>;

}  // namespace atlasc
