#include "atlasc/record.hpp"

#include <cstring>
#include <mutex>
#include <sstream>
#include <utility>

#include "atlasc/base/error.hpp"

namespace atlasc {
namespace {

/// A ring of 2^20 has that many roots of unity.
constexpr std::size_t most_roots = std::size_t{1} << 21;

[[noreturn]] void fail() {
    throw Error("the record of a program cannot be read",
                "the record ends too early, or has a wrong number",
                "emit the project again");
}

template <typename Number>
std::vector<Number> numbers_of(const Bytes& bytes) {
    std::vector<Number> numbers(bytes.size() / sizeof(Number));
    if (!numbers.empty()) {
        std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
    }
    return numbers;
}

/// Reads integers one after the other, and the floats that they stand for.
class Reader {
public:
    Reader(std::vector<std::int32_t> code, const Vector& floats)
        : code_(std::move(code)), floats_(floats) {}

    std::int32_t integer() {
        if (at_ == code_.size()) {
            fail();
        }
        return code_[at_++];
    }

    /// Integers in all: whatever is counted is written down, so that no count reaches this.
    std::size_t size() const { return code_.size(); }

    std::size_t count() {
        const std::int32_t found = integer();
        if (found < 0) {
            fail();
        }
        return static_cast<std::size_t>(found);
    }

    /// A count below a bound.
    std::size_t index(std::size_t end) {
        const std::size_t found = count();
        if (found >= end) {
            fail();
        }
        return found;
    }

    std::vector<std::size_t> counts() {
        std::vector<std::size_t> result;
        for (std::size_t left = count(); left > 0; --left) {
            result.push_back(count());
        }
        return result;
    }

    /// Indices below a bound.
    std::vector<std::size_t> indices(std::size_t end) {
        std::vector<std::size_t> result = counts();
        for (const std::size_t found : result) {
            if (found >= end) {
                fail();
            }
        }
        return result;
    }

    double number() { return floats_[index(floats_.size())]; }

    Vector numbers() {
        const std::size_t size = count();
        const std::size_t first = count();
        if (first + size > floats_.size()) {
            fail();
        }
        const auto start = floats_.begin() + static_cast<std::ptrdiff_t>(first);
        return {start, start + static_cast<std::ptrdiff_t>(size)};
    }

private:
    std::vector<std::int32_t> code_;
    const Vector& floats_;
    std::size_t at_ = 0;
};

Lookup lookup_of(Reader& reader, const std::deque<Table>& tables) {
    constexpr std::size_t sources = 9;
    Lookup lookup{static_cast<Lookup::Source>(reader.index(sources)), 0, {}, {}};
    if (lookup.source == Lookup::Source::literal) {
        lookup.literal = reader.numbers();
    } else if (lookup.source != Lookup::Source::mask) {
        lookup.argument = reader.count();
    }
    if (lookup.source == Lookup::Source::log_hidden_near) {
        lookup.window = reader.count();
        lookup.causal = reader.count() != 0;
    }
    const bool is_root = lookup.source == Lookup::Source::root;
    if (is_root && (lookup.argument == 0 || lookup.argument > most_roots)) {
        fail();
    }
    for (std::size_t left = reader.count(); left > 0; --left) {
        const Table& table = tables[reader.index(tables.size())];
        lookup.places.push_back({&table, reader.integer()});
    }
    return lookup;
}

Record::Recorded plaintext_of(Reader& reader, const std::deque<Table>& tables) {
    const std::size_t terms = reader.count();
    if (terms == 0) {
        return reader.number();
    }
    SlotsRecord slots{{}, new_identity()};
    for (std::size_t left = terms; left > 0; --left) {
        const double real = reader.number();
        const double imaginary = reader.number();
        slots.terms.push_back({{real, imaginary}, {}});
        for (std::size_t lookups = reader.count(); lookups > 0; --lookups) {
            slots.terms.back().lookups.push_back(lookup_of(reader, tables));
            const Lookup::Source source = slots.terms.back().lookups.back().source;
            if (source != Lookup::Source::mask && source != Lookup::Source::literal &&
                source != Lookup::Source::root) {
                slots.identity = 0;
            }
        }
    }
    return slots;
}

Function function_of(Reader& reader, const std::string& name, std::size_t plaintexts) {
    using Primitive = Instruction::Primitive;
    constexpr auto primitives = static_cast<std::size_t>(Primitive::chained_transform) + 1;
    Function function{name, name.substr(0, name.rfind('_')), reader.counts(), 0, {}, {}, {}};
    function.registers = reader.index(reader.size());
    for (const std::size_t is_mask : reader.counts()) {
        function.masks.push_back(is_mask != 0);
    }
    for (std::size_t left = reader.count(); left > 0; --left) {
        Instruction one{};
        one.primitive = static_cast<Primitive>(reader.index(primitives));
        one.operands = reader.indices(function.registers);
        one.plaintexts = reader.indices(plaintexts);
        one.numbers = reader.counts();
        one.results = reader.indices(function.registers);
        one.released = reader.indices(function.registers);
        function.code.push_back(std::move(one));
    }
    function.results = reader.indices(function.registers);
    return function;
}

}  // namespace

void Record::add(const std::function<Bytes(const std::string&)>& array) {
    const std::unique_lock<std::shared_mutex> alone(mutex_);
    const auto floats = numbers_of<double>(array("record/floats"));
    floats_.insert(floats_.end(), floats.begin(), floats.end());
    Reader reader(numbers_of<std::int32_t>(array("record/code")), floats_);
    const auto places = numbers_of<std::int32_t>(array("record/tables"));
    auto at = places.begin();
    for (std::size_t left = reader.count(); left > 0; --left) {
        const std::size_t size = reader.count();
        const std::size_t repeats = reader.count();
        if (size == 0 || repeats == 0 || static_cast<std::size_t>(places.end() - at) < size) {
            fail();
        }
        const auto end = at + static_cast<std::ptrdiff_t>(size);
        tables_.emplace_back(std::vector<std::int32_t>(at, end), repeats);
        at = end;
    }
    for (std::size_t left = reader.count(); left > 0; --left) {
        plaintexts_.push_back(plaintext_of(reader, tables_));
    }
    const Bytes names = array("record/names");
    std::istringstream lines(std::string(names.begin(), names.end()));
    for (std::string name; std::getline(lines, name);) {
        functions_.emplace(name, function_of(reader, name, plaintexts_.size()));
    }
}

bool Record::has(const std::string& name) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return functions_.count(name) != 0;
}

const Record::Recorded& Record::plaintext(std::size_t number) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return plaintexts_.at(number);
}

const Function& Record::function(const std::string& name) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = functions_.find(name);
    if (found == functions_.end()) {
        throw Error("the record of a program has no function " + name, "", "emit the project again");
    }
    return found->second;
}

}  // namespace atlasc
