#include <cstring>
#include <utility>

#include "atlasc/base/drafts.hpp"
#include "atlasc/base/json.hpp"
#include "atlasc/base/tensor_file.hpp"

namespace atlasc {
namespace {

constexpr std::size_t alignment = 8;

std::string array_text(const std::string& name, const std::string& type,
                       const std::vector<std::size_t>& shape, std::uint64_t begin,
                       std::uint64_t end) {
    std::string extents;
    for (const std::size_t extent : shape) {
        extents += (extents.empty() ? "" : ",") + std::to_string(extent);
    }
    return "," + json_string(name) + ":{\"dtype\":\"" + type + "\",\"shape\":[" + extents +
           "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

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

void TensorWriter::count(const std::string& name, const std::string& type,
                         const std::vector<std::size_t>& shape, std::size_t size) {
    entries_[name] = {type, shape, size, {}};
}

std::string TensorWriter::header(bool sealed) const {
    std::string text = "{\"__metadata__\":{";
    const char* separator = "";
    for (const auto& [name, value] : metadata_) {
        text += separator + json_string(name) + ":" + json_string(value);
        separator = ",";
    }
    text += "}";
    std::uint64_t at = 0;
    for (const auto& [name, entry] : entries_) {
        text += array_text(name, entry.type, entry.shape, at, at + entry.size);
        at += entry.size;
    }
    if (sealed) {
        const std::size_t size = sizeof(Digest) * (entries_.size() + 1);
        text += array_text("~sha256", "U8", {size}, at, at + size);
    }
    text += "}";
    return text + std::string((alignment - text.size() % alignment) % alignment, ' ');
}

void TensorWriter::write_to(const Sink& sink, bool sealed, bool wiped) const {
    const std::string text = header(sealed);
    const std::uint64_t length = text.size();
    sink(&length, sizeof length);
    Bytes seal;
    const auto put = [&](const void* data, std::size_t size) {
        sink(data, size);
        if (sealed) {
            const Digest digest = sha256(data, size);
            seal.insert(seal.end(), digest.begin(), digest.end());
        }
    };
    put(text.data(), text.size());
    for (const auto& named : entries_) {
        Bytes data = named.second.make();
        put(data.data(), data.size());
        if (wiped) {
            wipe(data);
        }
    }
    sink(seal.data(), seal.size());
}

void TensorWriter::write(const std::string& path, Access access, bool sealed) const {
    Draft draft(path, Draft::Kind::file, access);
    write_to([&draft](const void* data, std::size_t size) { draft.write(data, size); }, sealed,
             access == Access::secret);
    draft.publish();
}

std::uint64_t TensorWriter::sealed_size() const {
    const std::string text = header(true);
    std::uint64_t size = sizeof(std::uint64_t) + text.size() + sizeof(Digest);
    for (const auto& named : entries_) {
        size += named.second.size + sizeof(Digest);
    }
    return size;
}

Bytes TensorWriter::sealed() const {
    Bytes content;
    const auto append = [&content](const void* data, std::size_t size) {
        const auto* bytes = static_cast<const std::uint8_t*>(data);
        content.insert(content.end(), bytes, bytes + size);
    };
    write_to(append, true, false);
    return content;
}

}  // namespace atlasc
