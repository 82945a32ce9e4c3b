#include "atlasc/tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "atlasc/error.hpp"
#include "atlasc/json.hpp"

namespace atlasc {
namespace {

constexpr const char* metadata_name = "__metadata__";
constexpr std::uint64_t max_header = std::uint64_t{1} << 27;

std::size_t element_size(const std::string& type) {
    static const std::map<std::string, std::size_t> sizes = {
        {"F64", 8}, {"F32", 4}, {"I64", 8}, {"U8", 1}};
    const auto found = sizes.find(type);
    return found == sizes.end() ? 0 : found->second;
}

/// Whether elements of a size and a shape take that many bytes, whatever overflows.
bool holds(const std::vector<std::size_t>& shape, std::size_t size, std::uint64_t bytes) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
        return bytes == 0;
    }
    std::uint64_t left = bytes;
    for (const std::size_t extent : shape) {
        if (left % extent != 0) {
            return false;
        }
        left /= extent;
    }
    return left == size;
}

template <typename Number>
void convert(const Bytes& bytes, std::vector<double>& values) {
    values.reserve(bytes.size() / sizeof(Number));
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Number)) {
        Number number;
        std::memcpy(&number, bytes.data() + at, sizeof(Number));
        values.push_back(static_cast<double>(number));
    }
}

}  // namespace

std::size_t count_of(const std::vector<std::size_t>& shape) {
    std::size_t count = 1;
    for (const std::size_t extent : shape) {
        count *= extent;
    }
    return count;
}

TensorFile::TensorFile(std::string path) : path_(std::move(path)) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path_, ignored)) {
        throw Error("file " + path_ + " not found");
    }
    std::ifstream file(path_, std::ios::binary | std::ios::ate);
    if (!file) {
        throw Error("file " + path_ + " cannot be read");
    }
    const auto size = static_cast<std::uint64_t>(file.tellg());
    std::uint64_t length = 0;
    file.seekg(0);
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    if (size < sizeof length || length > max_header || length > size - sizeof length) {
        fail("it is no safetensors file, or it is truncated");
    }
    std::string header(length, '\0');
    file.read(header.data(), static_cast<std::streamsize>(length));
    data_start_ = sizeof length + length;
    try {
        read_header(header, size - data_start_);
    } catch (const Error& error) {
        fail(error.why.empty() ? error.what() : error.why);
    }
}

void TensorFile::read_header(const std::string& header, std::uint64_t data_size) {
    const Json parsed = parse_json(header);
    for (const auto& [name, value] : parsed.object()) {
        const Json::Object& facts = value.object();
        if (name == metadata_name) {
            for (const auto& [key, text] : facts) {
                metadata_[key] = text.string();
            }
            continue;
        }
        for (const char* wanted : {"dtype", "shape", "data_offsets"}) {
            if (facts.count(wanted) == 0) {
                fail("array " + name + " has no " + wanted);
            }
        }
        const Json::Array& offsets = facts.at("data_offsets").array();
        if (offsets.size() != 2 || offsets[0].integer() > offsets[1].integer()) {
            fail("array " + name + " has no place");
        }
        Entry entry{facts.at("dtype").string(), {}, offsets[0].integer(), offsets[1].integer()};
        if (entry.end > data_size) {
            fail("it is truncated: array " + name + " ends behind the end of the file");
        }
        for (const Json& extent : facts.at("shape").array()) {
            entry.shape.push_back(extent.integer());
        }
        const std::size_t size = element_size(entry.type);
        if (size != 0 && !holds(entry.shape, size, entry.end - entry.begin)) {
            fail("array " + name + " has not the size of its shape");
        }
        entries_.emplace(name, std::move(entry));
    }
}

void TensorFile::fail(const std::string& why) const {
    throw Error("file " + path_ + " is damaged", why, "copy it again, or make it again");
}

std::string TensorFile::fact(const std::string& name) const {
    const auto found = metadata_.find(name);
    return found == metadata_.end() ? "" : found->second;
}

std::vector<std::string> TensorFile::names() const {
    std::vector<std::string> result;
    for (const auto& named : entries_) {
        result.push_back(named.first);
    }
    return result;
}

const TensorFile::Entry& TensorFile::entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
        throw Error("file " + path_ + " has no array " + name);
    }
    return found->second;
}

const std::vector<std::size_t>& TensorFile::shape(const std::string& name) const {
    return entry(name).shape;
}

Bytes TensorFile::read(const Entry& entry) const {
    Bytes bytes(entry.end - entry.begin);
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(data_start_ + entry.begin));
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) {
        fail("it cannot be read any more");
    }
    return bytes;
}

Tensor TensorFile::tensor(const std::string& name) const {
    const Entry& found = entry(name);
    const Bytes bytes = read(found);
    Tensor tensor{found.shape, {}};
    if (found.type == "F64") {
        convert<double>(bytes, tensor.values);
    } else if (found.type == "F32") {
        convert<float>(bytes, tensor.values);
    } else if (found.type == "I64") {
        convert<std::int64_t>(bytes, tensor.values);
    } else {
        fail("array " + name + " holds " + found.type + ", not F64, F32 or I64");
    }
    return tensor;
}

Bytes TensorFile::bytes(const std::string& name) const {
    const Entry& found = entry(name);
    if (found.type != "U8") {
        fail("array " + name + " holds " + found.type + ", not bytes");
    }
    return read(found);
}

void TensorWriter::add(const std::string& name, const Tensor& tensor) {
    Bytes data(tensor.values.size() * sizeof(double));
    if (!data.empty()) {
        std::memcpy(data.data(), tensor.values.data(), data.size());
    }
    add(name, std::move(data));
    entries_[name].type = "F64";
    entries_[name].shape = tensor.shape;
}

void TensorWriter::add(const std::string& name, Bytes bytes) {
    const std::size_t size = bytes.size();
    add(name, size, [data = std::move(bytes)] { return data; });
}

void TensorWriter::add(const std::string& name, std::size_t size, std::function<Bytes()> make) {
    entries_[name] = {"U8", {size}, size, std::move(make)};
}

std::string TensorWriter::header() const {
    std::string text = "{" + json_string(metadata_name) + ":{";
    const char* separator = "";
    for (const auto& [name, value] : metadata_) {
        text += separator + json_string(name) + ":" + json_string(value);
        separator = ",";
    }
    text += "}";
    std::uint64_t at = 0;
    for (const auto& [name, entry] : entries_) {
        text += "," + json_string(name) + ":{\"dtype\":\"" + entry.type + "\",\"shape\":[";
        separator = "";
        for (const std::size_t extent : entry.shape) {
            text += separator + std::to_string(extent);
            separator = ",";
        }
        text += "],\"data_offsets\":[" + std::to_string(at) + ",";
        at += entry.size;
        text += std::to_string(at) + "]}";
    }
    text += "}";
    return text + std::string((8 - text.size() % 8) % 8, ' ');
}

void TensorWriter::write(const std::string& path, bool secret) const {
    namespace fs = std::filesystem;
    require_new(path);
    const fs::path draft = path + ".part";
    const std::string text = header();
    const std::uint64_t length = text.size();
    std::error_code failure;
    {
        std::ofstream file(draft, std::ios::binary | std::ios::trunc);
        if (secret) {
            fs::permissions(draft, fs::perms::owner_read | fs::perms::owner_write, failure);
        }
        file.write(reinterpret_cast<const char*>(&length), sizeof length);
        file.write(text.data(), static_cast<std::streamsize>(length));
        for (const auto& named : entries_) {
            const Bytes data = named.second.make();
            file.write(reinterpret_cast<const char*>(data.data()),
                       static_cast<std::streamsize>(data.size()));
        }
        file.flush();
        if (!file || failure) {
            file.close();
            fs::remove(draft, failure);
            throw Error("cannot write to " + path, "no such folder, no permission or no space");
        }
    }
    fs::rename(draft, path, failure);
    if (failure) {
        throw Error("cannot write to " + path, failure.message());
    }
}

void require_new(const std::string& path) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
        throw Error("the output " + path + " exists already", "",
                    "choose another, or remove it first; nothing is overwritten");
    }
}

}  // namespace atlasc
