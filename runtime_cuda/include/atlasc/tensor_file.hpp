// Arrays in files of the safetensors format: weights, inputs, outputs, keys and ciphertexts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace atlasc {

using Bytes = std::vector<std::uint8_t>;
using Metadata = std::map<std::string, std::string>;

/// Numbers in row-major order.
struct Tensor {
    std::vector<std::size_t> shape;
    std::vector<double> values;
};

/// Elements of a tensor of a shape.
std::size_t count_of(const std::vector<std::size_t>& shape);

/// A file that is open for reading; arrays are read when they are asked for.
class TensorFile {
public:
    /// Reads and checks the header. Throws Error: no such file, damaged, or truncated.
    explicit TensorFile(std::string path);

    const std::string& path() const { return path_; }
    const Metadata& metadata() const { return metadata_; }

    /// A piece of metadata; empty where there is none.
    std::string fact(const std::string& name) const;

    bool has(const std::string& name) const { return entries_.count(name) != 0; }
    std::vector<std::string> names() const;

    /// Shape of an array; throws Error where there is none of that name.
    const std::vector<std::size_t>& shape(const std::string& name) const;

    /// An array of float64, float32 or int64 as doubles.
    Tensor tensor(const std::string& name) const;

    /// An array of bytes.
    Bytes bytes(const std::string& name) const;

private:
    struct Entry {
        std::string type;
        std::vector<std::size_t> shape;
        std::uint64_t begin;
        std::uint64_t end;
    };

    const Entry& entry(const std::string& name) const;
    Bytes read(const Entry& entry) const;
    void read_header(const std::string& header, std::uint64_t data_size);
    [[noreturn]] void fail(const std::string& why) const;

    std::string path_;
    std::uint64_t data_start_ = 0;
    Metadata metadata_;
    std::map<std::string, Entry> entries_;
};

/// Collects arrays and writes them in one go.
class TensorWriter {
public:
    explicit TensorWriter(Metadata metadata) : metadata_(std::move(metadata)) {}

    /// Add numbers as float64.
    void add(const std::string& name, const Tensor& tensor);
    void add(const std::string& name, Bytes bytes);

    /// Add `size` bytes that are made when the file is written, one array at a time.
    void add(const std::string& name, std::size_t size, std::function<Bytes()> make);

    /// Write a new file, which appears whole or not at all; `secret`: readable by its owner alone.
    /// Throws Error: it exists already or cannot be written.
    void write(const std::string& path, bool secret = false) const;

private:
    struct Entry {
        std::string type;
        std::vector<std::size_t> shape;
        std::size_t size;
        std::function<Bytes()> make;
    };

    std::string header() const;

    Metadata metadata_;
    std::map<std::string, Entry> entries_;
};

/// Refuse a file that exists, before any work is done for it.
void require_new(const std::string& path);

}  // namespace atlasc
