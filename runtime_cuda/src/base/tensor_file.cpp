#include "atlasc/base/tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/json.hpp"

namespace atlasc {
namespace {

constexpr const char* metadata_name = "__metadata__";
constexpr const char* seal_name = "~sha256";
constexpr std::size_t chunk = std::size_t{1} << 20;
constexpr const char* truncated = "it is no safetensors file, or it is truncated";

std::size_t element_size(const std::string& type) {
    static const std::map<std::string, std::size_t> sizes = {
        {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
        {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
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

/// The digest of a part of a file, which need not fit into memory.
Digest digest_of(const PlainFile& file, std::uint64_t begin, std::uint64_t end) {
    Sha256 state;
    Bytes part(std::min<std::uint64_t>(chunk, end - begin));
    for (std::uint64_t at = begin; at < end; at += part.size()) {
        part.resize(std::min<std::uint64_t>(chunk, end - at));
        file.read(at, part.data(), part.size());
        state.add(part.data(), part.size());
    }
    return state.digest();
}

}  // namespace

std::size_t count_of(const std::vector<std::size_t>& shape) {
    std::size_t count = 1;
    for (const std::size_t extent : shape) {
        count *= extent;
    }
    return count;
}

TensorFile::TensorFile(PlainFile file, std::uint64_t max_header) : file_(std::move(file)) {
    std::uint64_t length = 0;
    if (file_.size() >= sizeof length) {
        file_.read(0, &length, sizeof length);
    }
    if (length == 0 || length > file_.size() - sizeof length) {
        fail(truncated);
    }
    if (length > max_header) {
        fail("its header has " + std::to_string(length) + " bytes, more than " +
             std::to_string(max_header));
    }
    std::string header(length, '\0');
    file_.read(sizeof length, header.data(), length);
    data_start_ = sizeof length + length;
    try {
        read_header(header);
    } catch (const Error& error) {
        fail(error.why.empty() ? error.what() : error.why);
    }
    check_cover();
    if (has(seal_name)) {
        read_seal(header);
    }
}

void TensorFile::read_header(const std::string& header) {
    const std::uint64_t data_size = file_.size() - data_start_;
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
        if (facts.size() != 3 || offsets.size() != 2 ||
            offsets[0].integer() > offsets[1].integer()) {
            fail("array " + name + " has no place, or more than that");
        }
        Entry entry{facts.at("dtype").string(), {}, offsets[0].integer(), offsets[1].integer()};
        if (entry.end > data_size) {
            fail(truncated);
        }
        for (const Json& extent : facts.at("shape").array()) {
            entry.shape.push_back(extent.integer());
        }
        const std::size_t size = element_size(entry.type);
        if (size == 0 || !holds(entry.shape, size, entry.end - entry.begin)) {
            fail("array " + name + " has not the size of its type and shape");
        }
        entries_.emplace(name, std::move(entry));
    }
}

/// Arrays that overlap would let a small file fill a large memory.
void TensorFile::check_cover() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
    for (const auto& named : entries_) {
        places.emplace_back(named.second.begin, named.second.end);
    }
    std::sort(places.begin(), places.end());
    std::uint64_t covered = 0;
    for (const auto& [begin, end] : places) {
        if (begin != covered) {
            fail("its arrays overlap, or leave gaps");
        }
        covered = end;
    }
    if (covered != file_.size() - data_start_) {
        fail("it has more data than its arrays");
    }
}

void TensorFile::read_seal(const std::string& header) {
    const std::size_t size = sizeof(Digest) * entries_.size();  // one of the header, none of its own
    if (type(seal_name) != "U8" || shape(seal_name) != std::vector<std::size_t>{size}) {
        fail("its checksums are not as many as its arrays");
    }
    const Bytes seal = read(seal_name);
    entries_.erase(seal_name);
    auto next = seal.begin();
    const auto taken = [&next] {
        Digest digest{};
        std::copy(next, next + static_cast<std::ptrdiff_t>(digest.size()), digest.begin());
        next += static_cast<std::ptrdiff_t>(digest.size());
        return digest;
    };
    if (taken() != sha256(header.data(), header.size())) {
        fail("its header does not match its checksum");
    }
    for (const auto& named : entries_) {
        digests_[named.first] = taken();
    }
    sealed_ = true;
}

void TensorFile::require_seal() const {
    if (!sealed_) {
        fail("it has no checksums");
    }
}

void TensorFile::require_format(const std::vector<std::string>& formats) const {
    if (std::find(formats.begin(), formats.end(), fact("format")) == formats.end()) {
        std::string known;
        for (const std::string& format : formats) {
            known += (known.empty() ? "" : " or ") + format;
        }
        throw Error(name() + " has format " + fact("format").substr(0, 20),
                    "this version reads format " + known,
                    "use the version of atlasc that wrote it, or make the file again");
    }
}

void TensorFile::require(const std::vector<Array>& arrays) {
    const auto refuse = [this](const std::string& why) {
        throw Error(name() + " does not have the weights of this program", why,
                    "give the weights of the project that this server was built from");
    };
    for (const Array& array : arrays) {
        if (!has(array.name) || type(array.name) != array.type ||
            shape(array.name) != array.shape) {
            refuse("its array " + array.name + " is missing, or of another type or shape");
        }
        const Entry& found = entry(array.name);
        const Digest digest =
            digest_of(file_, data_start_ + found.begin, data_start_ + found.end);
        if (text_of(digest) != array.sha256) {
            refuse("its array " + array.name + " has other numbers");
        }
        digests_[array.name] = digest;
    }
    if (entries_.size() != arrays.size()) {
        refuse("it has arrays that the program does not know");
    }
}

void TensorFile::fail(const std::string& why) const {
    throw Error(name() + " is damaged", why, "copy the file again, or make it again");
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
        throw Error(file_.name() + " has no array " + name);
    }
    return found->second;
}

const std::vector<std::size_t>& TensorFile::shape(const std::string& name) const {
    return entry(name).shape;
}

const std::string& TensorFile::type(const std::string& name) const { return entry(name).type; }

Bytes TensorFile::read(const std::string& name) const {
    const Entry& found = entry(name);
    Bytes bytes(found.end - found.begin);
    file_.read(data_start_ + found.begin, bytes.data(), bytes.size());
    if (digests_.count(name) != 0) {
        require_digest(name, sha256(bytes.data(), bytes.size()));
    }
    return bytes;
}

void TensorFile::require_digest(const std::string& name, const Digest& digest) const {
    const auto known = digests_.find(name);
    if (known != digests_.end() && known->second != digest) {
        fail("array " + name + " does not match its checksum");
    }
}

Tensor TensorFile::tensor(const std::string& name) const {
    const Entry& found = entry(name);
    Tensor tensor{found.shape, {}};
    if (found.type == "F64") {
        convert<double>(read(name), tensor.values);
    } else if (found.type == "F32") {
        convert<float>(read(name), tensor.values);
    } else if (found.type == "I64") {
        convert<std::int64_t>(read(name), tensor.values);
    } else {
        fail("array " + name + " holds " + found.type + ", not F64, F32 or I64");
    }
    return tensor;
}

const TensorFile::Entry& TensorFile::entry_of_bytes(const std::string& name) const {
    const Entry& found = entry(name);
    if (found.type != "U8") {
        fail("array " + name + " holds " + found.type + ", not bytes");
    }
    return found;
}

Bytes TensorFile::bytes(const std::string& name) const {
    entry_of_bytes(name);
    return read(name);
}

void TensorFile::parts(const std::string& name, std::size_t size,
                       const std::function<void(const Bytes&)>& use) const {
    const Entry& found = entry_of_bytes(name);
    Sha256 state;
    Bytes part;
    Bytes next;
    const auto read_next = [&](std::uint64_t at) {
        next.resize(std::min<std::uint64_t>(size, found.end - at));
        file_.read(data_start_ + at, next.data(), next.size());
        state.add(next.data(), next.size());
    };
    std::future<void> reading;  // after what it writes to, so that it ends first
    for (std::uint64_t at = found.begin; at < found.end; at += part.size()) {
        if (at == found.begin) {
            read_next(at);
        } else {
            reading.get();
        }
        part.swap(next);
        if (at + part.size() < found.end) {
            reading = std::async(std::launch::async, read_next, at + part.size());
        }
        use(part);
    }
    require_digest(name, state.digest());
}

Digest TensorFile::digest() const { return digest_of(file_, 0, file_.size()); }

}  // namespace atlasc
