#include "atlasc/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "atlasc/base/error.hpp"
#include "src/base/system.hpp"

namespace atlasc {
namespace {

/// A system reads and writes at most 2 GiB at once.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

std::string cause() { return std::generic_category().message(errno); }

std::string octal(unsigned mode) {
    std::string digits;
    for (int shift = 6; shift >= 0; shift -= 3) {
        digits += static_cast<char>('0' + ((mode >> shift) & 7));
    }
    return digits;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

Descriptor::~Descriptor() {
    if (open()) {
        ::close(number_);
    }
}

int Descriptor::release() { return std::exchange(number_, -1); }

PlainFile::PlainFile(const std::string& path)
    // O_NONBLOCK: a pipe without a writer is refused, not waited for.
    : path_(path),
      name_("file " + path),
      descriptor_(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
    if (!descriptor_.open()) {
        if (errno == ENOENT || errno == ENOTDIR) {
            throw Error("file " + path + " not found");
        }
        throw Error("file " + path + " cannot be read",
                    errno == ELOOP ? "the path is a link, not a plain file" : cause());
    }
    size_ = checked_size(descriptor_, path, Access::shared);
}

PlainFile::PlainFile(std::string name, Bytes content)
    : name_(std::move(name)),
      size_(content.size()),
      held_(std::move(content)),
      data_(held_.data()) {}

PlainFile PlainFile::view(std::string name, const std::uint8_t* data, std::size_t size) {
    PlainFile file;
    file.name_ = std::move(name);
    file.size_ = size;
    file.data_ = data;
    return file;
}

void PlainFile::hold(std::uint64_t most) {
    if (size_ > most) {
        throw Error(name_ + " is too large",
                    "the file has " + std::to_string(size_) + " bytes, more than " +
                        std::to_string(most),
                    "copy the file again, or make it again");
    }
    if (data_ == nullptr) {
        Bytes bytes(size_);
        read(0, bytes.data(), bytes.size());
        held_ = std::move(bytes);
        data_ = held_.data();
    }
}

void PlainFile::require_secret() const {
    if (descriptor_.open()) {
        checked_size(descriptor_, path_, Access::secret);
    }
}

void PlainFile::read(std::uint64_t at, void* to, std::size_t size) const {
    if (data_ != nullptr && at <= size_ && size <= size_ - at) {
        std::copy_n(data_ + at, size, static_cast<std::uint8_t*>(to));
        return;
    }
    if (!descriptor_.open()) {
        throw Error(name_ + " cannot be read", "the file ends too early");
    }
    auto* next = static_cast<char*>(to);
    while (size > 0) {
        const ssize_t done = ::pread(descriptor_.number(), next, std::min(size, most_at_once),
                                     static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            throw Error(name_ + " cannot be read any more",
                        done < 0 ? cause() : "the file became shorter");
        }
        next += done;
        at += static_cast<std::uint64_t>(done);
        size -= static_cast<std::size_t>(done);
    }
}

std::uint64_t checked_size(const Descriptor& file, const std::string& path, Access access) {
    struct stat facts {};
    if (::fstat(file.number(), &facts) != 0) {
        throw Error("file " + path + " cannot be read", cause());
    }
    if (!S_ISREG(facts.st_mode)) {
        throw Error("file " + path + " cannot be read", "the path is not a plain file");
    }
    if (access == Access::secret && facts.st_uid != ::geteuid()) {
        throw Error("the secret file " + path + " belongs to another user", "",
                    "copy it as a file of your own, and make new keys if another user had it");
    }
    if (access == Access::secret && (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        throw Error("the secret file " + path + " is open to other users",
                    "its mode is " + octal(facts.st_mode) + ", but it must be 600",
                    "chmod 600 " + path + ", and make new keys if others may have read it");
    }
    return static_cast<std::uint64_t>(facts.st_size);
}

void write_all(const Descriptor& file, const std::string& path, const void* data,
               std::size_t size) {
    const auto* next = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t done = ::write(file.number(), next, std::min(size, most_at_once));
        if (done < 0 && errno != EINTR) {
            fail_writing(path);
        }
        next += std::max<ssize_t>(done, 0);
        size -= static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    }
}

void fail_writing(const std::string& path) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    throw Error("cannot write to " + path, cause(),
                full ? "free some space, or choose a place on another disk" : "");
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.find_last_not_of('/') == std::string::npos
                                  ? std::string::npos
                                  : path.rfind('/', path.find_last_not_of('/'));
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

void forbid_core_dumps() { system::forbid_core_dumps(); }

void random_bytes(void* to, std::size_t size) {
    auto* next = static_cast<char*>(to);
    while (size > 0) {
        const long done = system::random_some(next, size);
        if (done < 0 && errno != EINTR) {
            throw Error("the system gives no random numbers", cause());
        }
        next += std::max(done, 0L);
        size -= static_cast<std::size_t>(std::max(done, 0L));
    }
}

std::string random_identity() {
    std::uint8_t bytes[16];
    random_bytes(bytes, sizeof bytes);
    return hexadecimal(bytes, sizeof bytes);
}

std::string hexadecimal(const std::uint8_t* bytes, std::size_t size) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t at = 0; at < size; ++at) {
        text += digits[bytes[at] >> 4];
        text += digits[bytes[at] & 15];
    }
    return text;
}

bool is_hexadecimal(const std::string& text, std::size_t digits) {
    return text.size() == digits &&
           text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void wipe(void* bytes, std::size_t size) {
    if (size > 0) {
        system::wipe(bytes, size);
    }
}

}  // namespace atlasc
