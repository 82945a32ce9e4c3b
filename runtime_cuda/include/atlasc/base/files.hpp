// Plain files, each read through one descriptor; random bytes; secrets in memory.
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

/// Who may read a file: whoever the user's umask allows, or only its owner.
enum class Access { shared, secret };

/// An open file descriptor, closed on destruction.
class Descriptor {
public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    int number() const { return number_; }
    bool open() const { return number_ >= 0; }

    /// Gives up the descriptor without closing it.
    int release();

private:
    int number_;
};

/// Refuse (Error) an open file that is not a plain file; if it is secret, also a file that is not
/// the user's own. Returns its size in bytes.
std::uint64_t checked_size(const Descriptor& file, const std::string& path, Access access);

/// A file that is open for reading.
class PlainFile {
public:
    /// Throws Error: the file does not exist, or is a link, a pipe or a device.
    PlainFile(const std::string& path);  // NOLINT: a path stands for its file
    PlainFile(const char* path) : PlainFile(std::string(path)) {}  // NOLINT

    /// Bytes in memory, with a name for errors, such as "the query".
    PlainFile(std::string name, Bytes content);

    /// Bytes that somebody else keeps in memory as long as this object lives: a mapping of a file.
    static PlainFile view(std::string name, const std::uint8_t* data, std::size_t size);

    /// Empty for bytes that came from no file.
    const std::string& path() const { return path_; }

    /// Name in errors.
    const std::string& name() const { return name_; }
    std::uint64_t size() const { return size_; }

    /// Refuse (Error) a file that other users may read.
    void require_secret() const;

    /// Read all of the file into memory, if it is not there yet. Later changes of the file then
    /// have no effect on what is read. Throws Error also for more than `most` bytes.
    void hold(std::uint64_t most);

    /// Fill `size` bytes from a position on. Throws Error.
    void read(std::uint64_t at, void* to, std::size_t size) const;

private:
    PlainFile() = default;

    std::string path_;
    std::string name_;
    Descriptor descriptor_;  ///< of a file that is not in memory
    std::uint64_t size_ = 0;
    Bytes held_;
    const std::uint8_t* data_ = nullptr;  ///< of bytes in memory
};

/// Write all bytes to an open file. Throws Error with the path and the cause.
void write_all(const Descriptor& file, const std::string& path, const void* data, std::size_t size);

/// The error of the last system call, as "cannot write to PATH".
[[noreturn]] void fail_writing(const std::string& path);

/// The folder of a path.
std::string folder_of(const std::string& path);

/// Prevent core dumps of this process, because its memory holds a secret key. Without privileges no
/// debugger can then attach to it, either.
void forbid_core_dumps();

/// Bytes from the system's random number generator.
void random_bytes(void* to, std::size_t size);

/// 128 random bits as hexadecimal digits.
constexpr std::size_t identity_size = 32;
std::string random_identity();

/// Two digits for each byte.
std::string hexadecimal(const std::uint8_t* bytes, std::size_t size);

/// Whether a text consists of exactly this many lower-case hexadecimal digits.
bool is_hexadecimal(const std::string& text, std::size_t digits);

/// Overwrite a secret in memory, in a way that no compiler leaves out.
void wipe(void* bytes, std::size_t size);

template <typename Container>
void wipe(Container& container) {
    wipe(container.data(), container.size() * sizeof *container.data());
}

/// A value that is wiped on destruction.
template <typename T>
struct Secret {
    static_assert(std::is_trivially_copyable_v<T>);

    ~Secret() { wipe(&value, sizeof value); }

    T value;
};

/// Allocator that wipes memory before it is freed: also memory that a vector leaves behind when it
/// grows, or when an error ends it.
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
