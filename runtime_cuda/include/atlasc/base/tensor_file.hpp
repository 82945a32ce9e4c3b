// Arrays in files of the safetensors format: weights, inputs, outputs, keys and ciphertexts.
//
// Keys and messages are sealed: their last array, "~sha256", holds the SHA-256 of the header and of
// each other array, by name. The seal reveals damage; it does not stop deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "atlasc/base/files.hpp"
#include "atlasc/base/sha256.hpp"

namespace atlasc {

using Metadata = std::map<std::string, std::string>;

/// Numbers, such as the slots of a ciphertext.
using Vector = std::vector<double>;

/// Numbers in row-major order.
struct Tensor {
    std::vector<std::size_t> shape;
    Vector values;
};

/// Number of elements of a tensor of a shape.
std::size_t count_of(const std::vector<std::size_t>& shape);

/// What a program knows about an array of its weights.
struct Array {
    std::string name;
    std::string type;  ///< safetensors' name, such as "F32"
    std::vector<std::size_t> shape;
    std::string sha256;  ///< of its bytes, as 64 hexadecimal digits
};

/// A file that is open for reading. Arrays are read on demand, and checked against their digests as
/// far as these are known.
class TensorFile {
public:
    /// Greatest number of bytes of a header, unless its reader asks for fewer.
    static constexpr std::uint64_t small_header = std::uint64_t{1} << 20;
    static constexpr std::uint64_t large_header = std::uint64_t{1} << 24;

    /// Reads and checks the header. Throws Error: the file does not exist, is damaged, or
    /// truncated.
    explicit TensorFile(PlainFile file, std::uint64_t max_header = small_header);

    const std::string& path() const { return file_.path(); }
    const std::string& name() const { return file_.name(); }
    const Metadata& metadata() const { return metadata_; }

    /// A piece of metadata; empty if there is none.
    std::string fact(const std::string& name) const;

    /// Names of the arrays in order, without the seal.
    std::vector<std::string> names() const;
    bool has(const std::string& name) const { return entries_.count(name) != 0; }

    /// Shape and type of an array; each throws Error if there is no such array.
    const std::vector<std::size_t>& shape(const std::string& name) const;
    const std::string& type(const std::string& name) const;

    /// Refuse (Error) a file that other users may read.
    void require_secret() const { file_.require_secret(); }

    /// Refuse (Error) a file of another format than these.
    void require_format(const std::vector<std::string>& formats) const;

    /// Refuse (Error) a file without a seal.
    void require_seal() const;

    /// Refuse (Error) arrays other than exactly these, now or whenever they are read.
    void require(const std::vector<Array>& arrays);

    /// An array of float64, float32 or int64, as doubles.
    Tensor tensor(const std::string& name) const;

    /// An array of bytes.
    Bytes bytes(const std::string& name) const;

    /// Gives an array of bytes in order to `use`, in parts of `size` bytes, the last of which may be
    /// smaller. The next part is read, and its digest computed, by another thread meanwhile. Throws
    /// Error after the last part if the array does not match its checksum: what was used is void.
    void parts(const std::string& name, std::size_t size,
               const std::function<void(const Bytes&)>& use) const;

    /// Digest of the whole file.
    Digest digest() const;

private:
    struct Entry {
        std::string type;
        std::vector<std::size_t> shape;
        std::uint64_t begin;
        std::uint64_t end;
    };

    const Entry& entry(const std::string& name) const;
    const Entry& entry_of_bytes(const std::string& name) const;
    void require_digest(const std::string& name, const Digest& digest) const;
    Bytes read(const std::string& name) const;
    void read_header(const std::string& header);
    void check_cover() const;
    void read_seal(const std::string& header);
    [[noreturn]] void fail(const std::string& why) const;

    PlainFile file_;
    std::uint64_t data_start_ = 0;
    Metadata metadata_;
    std::map<std::string, Entry> entries_;
    std::map<std::string, Digest> digests_;
    bool sealed_ = false;
};

/// Collects arrays and writes them at once.
class TensorWriter {
public:
    explicit TensorWriter(Metadata metadata) : metadata_(std::move(metadata)) {}

    /// Add numbers as float64.
    void add(const std::string& name, const Tensor& tensor);
    void add(const std::string& name, Bytes bytes);

    /// Add `size` bytes that are computed when the file is written, one array at a time.
    void add(const std::string& name, std::size_t size, std::function<Bytes()> make);

    /// Add an array that `sealed_size` counts, in a file that is never written.
    void count(const std::string& name, const std::string& type,
               const std::vector<std::size_t>& shape, std::size_t size);

    /// Write a new file, which appears whole or not at all. Throws Error: it exists already or
    /// cannot be written.
    void write(const std::string& path, Access access = Access::shared) const {
        write(path, access, false);
    }

    /// The content of a sealed file, and its number of bytes, for which nothing is computed.
    Bytes sealed() const;
    std::uint64_t sealed_size() const;

    /// Write the same file with a seal. Bytes computed for a secret file are wiped after writing.
    void write_sealed(const std::string& path, Access access = Access::shared) const {
        write(path, access, true);
    }

private:
    struct Entry {
        std::string type;
        std::vector<std::size_t> shape;
        std::size_t size;
        std::function<Bytes()> make;
    };

    using Sink = std::function<void(const void* data, std::size_t size)>;

    void write(const std::string& path, Access access, bool sealed) const;
    void write_to(const Sink& sink, bool sealed, bool wiped) const;
    std::string header(bool sealed) const;

    Metadata metadata_;
    std::map<std::string, Entry> entries_;
};

}  // namespace atlasc
