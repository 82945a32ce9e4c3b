// A program's ops in primitives: functions that the compiler recorded and an engine replays.
//
// The compiler lowers each op once; atlasc/program/record_arrays.py writes the record.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/gather.hpp"

namespace atlasc {

/// A table and its rotation: slot i uses the entry of slot i + rotation, cyclically.
struct PlaceOf {
    const Table* table;
    long rotation;
};

/// An element of an array for every slot, at the sum of the tables' entries; 0 if an entry is
/// `nowhere`.
struct Lookup {
    /// Five are derived from an argument that is a mask [batch, tokens].
    enum class Source {
        mask,             ///< 1 instead of an element
        literal,
        argument,
        log_hidden,       ///< log(keys / visible keys) if a query sees the keys up to each token
        root,             ///< a power of exp(2 pi i / order)
        shares,           ///< 1 / kept tokens for tokens that the mask keeps, 0 for others
        positions,        ///< the tokens that the mask keeps before each token
        log_hidden_near,  ///< the same if it sees keys less than `window` tokens away, none after it
                          ///< if `causal`; a query that the mask drops has no window
        last_kept,        ///< 1 for the last token that the mask keeps, 0 for others
    };

    Source source;
    std::size_t argument;  ///< position among the arrays of the call, or the order of a root
    Vector literal;
    std::vector<PlaceOf> places;
    std::size_t window = 0;  ///< of log_hidden_near
    bool causal = false;     ///< the same
    Life life = new_life();  ///< of the literal
};

/// A factor times the lookups, slot by slot.
struct Term {
    std::complex<double> factor;
    std::vector<Lookup> lookups;
};

/// The slots of a plaintext, which is the sum of terms.
struct SlotsRecord {
    std::vector<Term> terms;
    std::uint64_t identity;  ///< unique in this process; 0 if they depend on an argument
};

/// One call of an engine.
struct Instruction {
    enum class Primitive {
        add, sub, negate, add_plain, mul, square, dot, mul_plain, dot_plain,
        times_i, conjugate, rotate, rotate_many, drop_to, bootstrap_many,
        transform, raise_modulus, rotate_sum, chained_transform,
    };

    Primitive primitive;
    std::vector<std::size_t> operands;  ///< registers; for a dot all left, then all right ones
    std::vector<std::size_t> plaintexts;
    /// Amounts of rotations, a level to drop to, a level to raise to and copies, or the period of a
    /// bootstrap; for a transform the baby and the
    /// giant step of each plaintext, plus the slots of all operands and results before its own.
    std::vector<std::size_t> numbers;
    std::vector<std::size_t> results;
    std::vector<std::size_t> released;  ///< registers that are not read afterwards
};

/// The function of an op. Registers are numbered from 0, those of the operands first.
struct Function {
    std::string name;
    std::string op;  ///< name in the IR, without "ckks."
    std::vector<std::size_t> operands;  ///< number of ciphertexts of each operand
    std::size_t registers;
    std::vector<bool> masks;  ///< for each array of a call, whether it is a public mask
    std::vector<Instruction> code;
    std::vector<std::size_t> results;
};

/// The functions of a program. Threads may replay them while another thread adds to them.
class Record {
public:
    Record() = default;

    /// The record in a file. Throws Error: the file has no record.
    explicit Record(const TensorFile& file) {
        add([&file](const std::string& name) { return file.bytes(name); });
    }

    Record(const Record&) = delete;
    Record& operator=(const Record&) = delete;

    /// Adds the arrays "record/..." by name: functions, and the parts that earlier functions do not
    /// have. Throws Error: the arrays are no record; this record is then unusable.
    void add(const std::function<Bytes(const std::string&)>& array);

    /// A function by name. Throws Error if there is none.
    const Function& function(const std::string& name) const;
    bool has(const std::string& name) const;

    /// A number, or slots that `slots` builds.
    using Recorded = std::variant<double, SlotsRecord>;
    const Recorded& plaintext(std::size_t number) const;

private:
    mutable std::shared_mutex mutex_;  ///< for the containers; their elements never move
    std::deque<Table> tables_;         ///< lookups point to them
    std::deque<Recorded> plaintexts_;
    Vector floats_;
    std::map<std::string, Function> functions_;
};

/// The arrays of one call.
class Arrays {
public:
    explicit Arrays(std::vector<Tensor> tensors);

    /// In what a lookup of a literal or of an argument finds its elements; it lives as long as both.
    /// Several threads may ask. Throws Error if the call has no such argument.
    Elements of(const Lookup& lookup);

private:
    struct Derived {
        Vector numbers;
        Life life = new_life();
    };

    std::vector<Tensor> tensors_;
    std::vector<Life> lives_;  ///< of each tensor
    std::mutex mutex_;         ///< over what is derived
    std::map<std::tuple<Lookup::Source, std::size_t, std::size_t, bool>, Derived> derived_;
};

/// Throws Error: another one may have written the record.
[[noreturn]] void refuse_record(const std::string& why);

/// Number of slots after which those of a plaintext repeat.
std::size_t period_of(const SlotsRecord& slots, std::size_t size);

/// How the slots of a plaintext with `size` slots are computed. Throws Error: a lookup leads outside
/// its elements.
GatherPlan plan_of(const SlotsRecord& slots, std::size_t size, Arrays& arrays);

/// One period of the slots of a plaintext; one number for each run of equal slots.
Numbers built(GatherPlan plan);

/// The result of a function; operands are freed with their last use. Plaintexts that depend on no
/// argument keep their identity, so that an engine can cache their encodings.
Ciphertexts replay(Engine& engine, const Record& record, const Function& function, Arrays& arrays,
                   std::vector<Ciphertexts> operands);

/// The records by which an engine bootstraps. Several threads may use it.
class Bootstraps {
public:
    void add(std::shared_ptr<const Record> record);
    bool empty() const;

    /// The result of `Engine::bootstrap_many`, by functions of one of the records: of two
    /// ciphertexts, and of one for the last of an odd number.
    Ciphertexts refreshed(Engine& engine, const Ciphertexts& xs, std::size_t period) const;

private:
    mutable std::mutex mutex_;
    std::vector<std::shared_ptr<const Record>> records_;
};

}  // namespace atlasc
