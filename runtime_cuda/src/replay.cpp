// Functions on an engine: one call for each instruction, or for a few that stand side by side.
#include <algorithm>
#include <set>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/context.hpp"

namespace atlasc {
namespace {

/// The operands' rotations and their factors, by the rotation that follows them and its result: of
/// `slots` numbers each, the first are those of the first operand or result.
std::vector<GiantStep> steps_of(const Instruction& instruction,
                                const std::vector<Plaintext>& plaintexts, std::size_t slots) {
    std::vector<GiantStep> steps;
    std::set<std::size_t> results;
    for (std::size_t at = 0; at < plaintexts.size(); ++at) {
        const std::size_t from = instruction.numbers.at(2 * at);
        const std::size_t to = instruction.numbers.at(2 * at + 1);
        const BabyStep baby{from / slots, from % slots};
        const GiantStep giant{to / slots, to % slots, {}};
        if (baby.operand >= instruction.operands.size() ||
            giant.result >= instruction.results.size()) {
            refuse_record("a transform has fewer ciphertexts than its steps name");
        }
        if (steps.empty() || steps.back().result != giant.result ||
            steps.back().rotation != giant.rotation) {
            steps.push_back(giant);
        }
        steps.back().terms.emplace(baby, plaintexts[at]);
        results.insert(giant.result);
    }
    if (results.size() != instruction.results.size()) {
        refuse_record("a transform has more results than its steps name");
    }
    return steps;
}

std::vector<Plaintext> plaintexts_of(const Instruction& instruction, const Record& record,
                                     std::size_t slots, Arrays& arrays) {
    std::vector<Plaintext> result;
    for (const std::size_t number : instruction.plaintexts) {
        const Record::Recorded& recorded = record.plaintext(number);
        if (const double* value = std::get_if<double>(&recorded)) {
            result.emplace_back(*value);
            continue;
        }
        const auto& descriptor = std::get<SlotsRecord>(recorded);
        const auto plan = [&descriptor, slots, &arrays] {
            return plan_of(descriptor, slots, arrays);
        };
        const std::size_t period = period_of(descriptor, slots);
        result.emplace_back(Deferred{descriptor.identity, [plan] { return built(plan()); },
                                     slots / period, plan});
    }
    return result;
}

/// What a program says that a primitive takes; another one may have written it.
template <typename Given>
const Given& given(const std::vector<Given>& all, std::size_t at) {
    if (at >= all.size()) {
        refuse_record("a primitive lacks an operand or a number");
    }
    return all[at];
}

Ciphertexts called(Engine& engine, const Instruction& instruction, const Ciphertexts& x,
                   const std::vector<Plaintext>& plaintexts) {
    using Primitive = Instruction::Primitive;
    const auto half = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
    switch (instruction.primitive) {
        case Primitive::add: return {engine.add(given(x, 0), given(x, 1))};
        case Primitive::sub: return {engine.sub(given(x, 0), given(x, 1))};
        case Primitive::negate: return {engine.negate(given(x, 0))};
        case Primitive::add_plain: return {engine.add_plain(given(x, 0), given(plaintexts, 0))};
        case Primitive::mul: return {engine.mul(given(x, 0), given(x, 1))};
        case Primitive::square: return {engine.square(given(x, 0))};
        case Primitive::dot: return {engine.dot({x.begin(), half}, {half, x.end()})};
        case Primitive::mul_plain: return {engine.mul_plain(given(x, 0), given(plaintexts, 0))};
        case Primitive::dot_plain: return {engine.dot_plain(x, plaintexts)};
        case Primitive::times_i: return {engine.times_i(given(x, 0))};
        case Primitive::conjugate: return {engine.conjugate(given(x, 0))};
        case Primitive::rotate: return {engine.rotate(given(x, 0), given(instruction.numbers, 0))};
        case Primitive::rotate_many: return engine.rotate_many(given(x, 0), instruction.numbers);
        case Primitive::drop_to:
            return {engine.drop_to(given(x, 0), static_cast<int>(given(instruction.numbers, 0)))};
        case Primitive::bootstrap_many:
            return engine.bootstrap_many(x, given(instruction.numbers, 0),
                                         static_cast<int>(given(instruction.numbers, 1)));
        case Primitive::transform:
            return engine.transform(x, steps_of(instruction, plaintexts, engine.slots()), false);
        case Primitive::chained_transform:
            return engine.transform(x, steps_of(instruction, plaintexts, engine.slots()), true);
        case Primitive::raise_modulus:
            return {engine.raise_modulus(given(x, 0), static_cast<int>(given(instruction.numbers, 0)),
                                         given(instruction.numbers, 1))};
        case Primitive::rotate_sum: return {engine.rotate_sum(given(x, 0), instruction.numbers)};
    }
    refuse_record("it has an unknown primitive");
}

/// Whether an engine takes the results of products that are not yet relinearised or rescaled: it adds
/// them, or drops primes of them first, so that the division has fewer.
bool takes_pending(Instruction::Primitive primitive) {
    using Primitive = Instruction::Primitive;
    return primitive == Primitive::add || primitive == Primitive::sub ||
           primitive == Primitive::negate || primitive == Primitive::add_plain ||
           primitive == Primitive::times_i || primitive == Primitive::drop_to;
}

/// The instructions from `first` on that an engine may do side by side: of one primitive, with
/// operands that are there (`in_step` of atlasc/program/lanes.py puts them so). Returns their end.
std::size_t beside(const Function& function, std::size_t first, const Ciphertexts& registers) {
    const auto ready = [&](const Instruction& instruction) {
        return instruction.primitive == function.code[first].primitive &&
               std::all_of(instruction.operands.begin(), instruction.operands.end(),
                           [&](std::size_t number) { return registers[number] != nullptr; });
    };
    std::size_t end = first + 1;
    while (end < function.code.size() && ready(function.code[end])) {
        ++end;
    }
    return end;
}

/// A function on an engine, with its registers.
class Player {
public:
    Player(Engine& engine, const Record& record, const Function& function, Arrays& arrays,
           Ciphertexts registers)
        : engine_(engine),
          record_(record),
          function_(function),
          arrays_(arrays),
          registers_(std::move(registers)) {
        registers_.resize(function.registers);
    }

    Ciphertexts played() {
        std::size_t end = 0;
        for (std::size_t first = 0; first < function_.code.size(); first = end) {
            end = beside(function_, first, registers_);
            play(first, end);
        }
        Ciphertexts results;
        for (const std::size_t number : function_.results) {
            results.push_back(registers_[number]);
        }
        return results;
    }

private:
    void play(std::size_t first, std::size_t end) {
        const auto& code = function_.code;
        const Instruction::Primitive primitive = code[first].primitive;
        const bool rotates = primitive == Instruction::Primitive::rotate;
        if (end - first > 1 && rotates) {
            std::vector<std::size_t> amounts;
            for (std::size_t at = first; at < end; ++at) {
                amounts.push_back(given(code[at].numbers, 0));
            }
            const Ciphertexts made = engine_.rotate_each(operands(first, end), amounts);
            for (std::size_t at = first; at < end; ++at) {
                keep(code[at], {made[at - first]});
            }
            return;
        }
        if (!takes_pending(primitive)) {
            engine_.settle(operands(first, end));
        }
        for (std::size_t at = first; at < end; ++at) {
            keep(code[at], called(engine_, code[at], operands(at, at + 1),
                                  plaintexts_of(code[at], record_, engine_.slots(), arrays_)));
        }
    }

    Ciphertexts operands(std::size_t first, std::size_t end) const {
        Ciphertexts found;
        for (std::size_t at = first; at < end; ++at) {
            for (const std::size_t number : function_.code[at].operands) {
                if (registers_[number] == nullptr) {
                    refuse_record(function_.name + " reads a ciphertext that it does not have");
                }
                found.push_back(registers_[number]);
            }
        }
        return found;
    }

    void keep(const Instruction& instruction, Ciphertexts made) {
        if (made.size() != instruction.results.size()) {
            refuse_record(function_.name + " makes other ciphertexts than it says");
        }
        for (std::size_t at = 0; at < made.size(); ++at) {
            registers_[instruction.results[at]] = std::move(made[at]);
        }
        for (const std::size_t number : instruction.released) {
            registers_[number] = nullptr;
        }
    }

    Engine& engine_;
    const Record& record_;
    const Function& function_;
    Arrays& arrays_;
    Ciphertexts registers_;
};

}  // namespace

Ciphertexts replay(Engine& engine, const Record& record, const Function& function, Arrays& arrays,
                   std::vector<Ciphertexts> operands) {
    Ciphertexts registers;
    for (std::size_t at = 0; at < operands.size(); ++at) {
        if (operands.size() != function.operands.size() ||
            operands[at].size() != function.operands[at]) {
            refuse_record(function.name + " is given other ciphertexts than it takes");
        }
        std::move(operands[at].begin(), operands[at].end(), std::back_inserter(registers));
        operands[at].clear();
    }
    return Player(engine, record, function, arrays, std::move(registers)).played();
}

void Bootstraps::add(std::shared_ptr<const Record> record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    records_.push_back(std::move(record));
}

bool Bootstraps::empty() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return records_.empty();
}

Ciphertexts Bootstraps::refreshed(Engine& engine, const Ciphertexts& xs,
                                  std::size_t period) const {
    const std::string one = "refresh_1_" + std::to_string(period);
    const std::string two = "refresh_2_" + std::to_string(period);
    const std::shared_ptr<const Record> found = [&]() -> std::shared_ptr<const Record> {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = std::find_if(records_.begin(), records_.end(),
                                     [&](const auto& record) { return record->has(two); });
        return at == records_.end() ? nullptr : *at;
    }();
    if (found == nullptr) {
        refuse_record("it has no bootstrap of slots that repeat after " + std::to_string(period));
    }
    const Record& record = *found;
    Ciphertexts result;
    Arrays none({});
    for (std::size_t at = 0; at < xs.size(); at += 2) {
        std::vector<Ciphertexts> operands;
        for (std::size_t x = at; x < std::min(at + 2, xs.size()); ++x) {
            operands.push_back({xs[x]});
        }
        const Function& function = record.function(operands.size() == 2 ? two : one);
        for (Ciphertext& x : replay(engine, record, function, none, std::move(operands))) {
            result.push_back(std::move(x));
        }
    }
    return result;
}

Ciphertexts Context::play(const std::string& name, const std::vector<std::string>& arrays,
                          std::vector<Ciphertexts> operands) {
    const Function& function = record_.function(name);
    if (arrays.size() != function.masks.size()) {
        refuse_record(name + " is given other arrays than it takes");
    }
    if (clock_ != nullptr) {
        clock_->begin(function.op, place_);
    }
    std::vector<Tensor> tensors;
    for (std::size_t at = 0; at < function.masks.size(); ++at) {
        const std::string& array = arrays[at];
        const auto given = publics_.find(array);
        if (function.masks[at] && given == publics_.end()) {
            refuse_record(array + " is no public input");
        }
        tensors.push_back(function.masks[at] ? given->second : weights_.tensor(array));
    }
    Arrays given(std::move(tensors));
    return replay(engine_, record_, function, given, std::move(operands));
}

}  // namespace atlasc
