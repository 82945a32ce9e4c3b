#include "atlasc/program_file.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/json.hpp"
#include "atlasc/base/sha256.hpp"
#include "src/program_checks.hpp"
#include "src/program_facts.hpp"

namespace atlasc {
namespace {

constexpr std::size_t program_format = 2;
constexpr std::size_t kept = std::numeric_limits<std::size_t>::max();
constexpr std::size_t most_text = std::size_t{64} << 20;

/// Refuses (Error) whatever names something that is not in the file.
void require_there(const TensorFile& file, bool there, const std::string& user,
                   const std::string& what) {
    if (!there) {
        refuse_program(file, user + " is of " + what + ", which is not there");
    }
}

/// Names of the functions that the file records.
std::set<std::string> functions_in(const TensorFile& file) {
    for (const char* array : {"record/code", "record/tables", "record/floats", "record/names"}) {
        if (!file.has(array)) {
            refuse_program(file, std::string("it has no array '") + array + "'");
        }
    }
    const Bytes bytes = file.bytes("record/names");
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    std::set<std::string> names;
    for (std::string name; std::getline(lines, name);) {
        names.insert(name);
    }
    return names;
}

/// What `read` gives; what no JSON text of a program says is damage of the file.
template <typename Read>
auto undamaged(const TensorFile& file, const Read& read) {
    try {
        return read();
    } catch (const Error& error) {
        if (!error.remedy.empty()) {
            throw;
        }
        refuse_program(file, error.why.empty() ? error.what() : error.why);
    }
}

/// The text of a file, which must be the one that was written.
Json read_text(const TensorFile& file, const std::string& array) {
    if (!file.has(array)) {
        throw Error(file.name() + " has no " + array,
                    "it is another file, or of another version of atlasc",
                    "compile the model with this version of atlasc, and give the bundle");
    }
    const std::vector<std::size_t>& shape = file.shape(array);
    if (count_of(shape) > most_text) {
        refuse_program(file, "its text is too large");
    }
    const Bytes bytes = file.bytes(array);
    const std::string text(bytes.begin(), bytes.end());
    if (file.fact("sha256") != text_of(sha256(bytes.data(), bytes.size()))) {
        refuse_program(file, "its text is not the one that was written");
    }
    Json json = parse_json(text);
    const Facts facts(file, json);
    const std::size_t said = facts.has("format") ? facts.count("format") : 0;
    if (said != program_format) {
        throw Error(file.name() + " has format " + std::to_string(said),
                    "this version of atlasc reads format " + std::to_string(program_format) +
                        " of a program's file",
                    "compile the model with this version of atlasc, or use the version that compiled it");
    }
    return json;
}

Parameters parameters_of(const Facts& facts) {
    Parameters found{facts.count("slots"), facts.level("max_level"), std::nullopt,
                     facts.level("bootstrap_batch")};
    if (facts.has("bootstrap_level")) {
        found.bootstrap_level = facts.level("bootstrap_level");
    }
    if (facts.has("moduli")) {
        const Facts moduli = facts.facts("moduli");
        Moduli sizes{moduli.levels("primes"), moduli.levels("special"), moduli.level("scale")};
        for (const Json& one : moduli["log_scales"].array()) {
            sizes.log_scales.push_back(one.real());
        }
        found.moduli = std::move(sizes);
    }
    return found;
}

KeyPlan keys_of(const TensorFile& file, const Facts& facts) {
    KeyPlan keys{{}, facts.level_if_any("relinearization_level"),
                 facts.level_if_any("conjugation_level")};
    for (const Json& pair : facts["rotations"].array()) {
        const Json::Array& numbers = pair.array();
        if (numbers.size() != 2) {
            refuse_program(file, "a rotation in its text is none");
        }
        keys.rotations.emplace(facts.counted(numbers[0]), facts.leveled(numbers[1]));
    }
    if (facts.has("derivation")) {
        const Facts derivation = facts.facts("derivation").only({"level", "last", "roots"});
        keys.derivation = {derivation.level("level"), derivation.level("last"), {}};
        for (const Json& pair : derivation["roots"].array()) {
            const Json::Array& numbers = pair.array();
            if (numbers.size() != 2) {
                refuse_program(file, "a derived rotation in its text is none");
            }
            keys.derivation.roots.emplace(facts.counted(numbers[0]), facts.counted(numbers[1]));
        }
    }
    return keys;
}

EncryptedInput input_of(const Facts& facts) {
    facts.only({"name", "shape", "layout", "level", "factor", "centred", "magnitude", "state", "prefix"});
    return {facts["name"].string(),
            facts.counts("shape"),
            facts.layout(),
            facts.level("level"),
            facts.real_if_any("factor").value_or(1.0),
            facts.flag("centred"),
            facts.real_if_any("magnitude"),
            facts.flag("state"),
            facts.text_if_any("prefix")};
}

/// A number, or those of an array of the file, which only a client has.
Vector numbers_of(const TensorFile& file, const Facts& facts, const std::string& name,
                  double otherwise) {
    if (!facts.has(name)) {
        return {otherwise};
    }
    if (std::holds_alternative<Json::Object>(facts[name].value)) {
        return file.tensor(facts.facts(name)["array"].string()).values;
    }
    return {facts[name].real()};
}

Output output_of(const TensorFile& file, const Facts& facts) {
    facts.only({"name", "shape", "layout", "level", "factor", "shift", "magnitude", "noise", "state",
                "function", "value"});
    return {facts["name"].string(),
            facts.counts("shape"),
            facts.layout(),
            numbers_of(file, facts, "factor", 1.0),
            numbers_of(file, facts, "shift", 0.0),
            facts.level("level"),
            facts.real_if_any("magnitude"),
            facts.real_if_any("noise"),
            facts.flag("state"),
            facts.text_if_any("function")};
}

Interface interface_of(const TensorFile& file, const Facts& facts) {
    facts.only({"format", "model", "parameters", "keys", "needs", "inputs", "publics", "outputs", "calls",
                "measured", "memory", "arrays", "engine"});
    Interface found{facts["model"].string(), file.fact("program"),
                    parameters_of(facts.facts("parameters")), keys_of(file, facts.facts("needs")),
                    {}, {}, {}};
    for (const Json& one : facts["inputs"].array()) {
        found.inputs.push_back(input_of({file, one}));
    }
    for (const Json& one : facts["publics"].array()) {
        const Facts input = Facts(file, one).only({"name", "shape"});
        found.publics.push_back({input["name"].string(), input.counts("shape")});
    }
    for (const Json& one : facts["outputs"].array()) {
        found.outputs.push_back(output_of(file, {file, one}));
    }
    found.plan = keys_of(file, facts.facts("keys"));
    found.engine = facts.text_if_any("engine");
    if (found.inputs.empty() || found.outputs.empty()) {
        refuse_program(file, "it has no inputs or no outputs");
    }
    require_sound(file, found);
    return found;
}

}  // namespace

Interface Interface::of_messages() const {
    Interface found = *this;
    const auto drop = [](auto& all) {
        all.erase(std::remove_if(all.begin(), all.end(), [](const auto& one) { return one.state; }),
                  all.end());
    };
    drop(found.inputs);
    drop(found.outputs);
    return found;
}

bool Interface::keeps_state() const {
    const Interface sent = of_messages();
    return sent.inputs.size() < inputs.size() || sent.outputs.size() < outputs.size();
}

std::string part_of(const std::string& bundle, const std::string& file) {
    return std::filesystem::is_directory(bundle) ? bundle + "/" + file : bundle;
}

Interface read_interface(const TensorFile& file) {
    return undamaged(file, [&] {
        const Json text = read_text(file, "interface");
        return interface_of(file, {file, text});
    });
}

StoredProgram::StoredProgram(const TensorFile& file)
    : file_(file.name()), text_(file.fact("sha256")) {
    undamaged(file, [&] { read(file); });
}

void StoredProgram::read(const TensorFile& file) {
    const Json text = read_text(file, "program");
    const Facts facts(file, text);
    interface_ = interface_of(file, facts);
    for (const Json& one : facts["arrays"].array()) {
        const Facts array(file, one);
        interface_.weights.push_back({array["name"].string(), array["type"].string(),
                                      array.counts("shape"), array["sha256"].string()});
    }
    interface_.weights.push_back({"program", "U8", file.shape("program"), text_});
    interface_.memory = facts.count("memory");
    measured_ = facts.count("measured") != 0;
    const std::set<std::string> functions = functions_in(file);
    std::set<std::string> publics;
    for (const PublicInput& input : interface_.publics) {
        if (file.has(input.name)) {
            refuse_program(file, "'" + input.name + "' is an array and a public input");
        }
        publics.insert(input.name);
    }
    const auto require_value = [&](const std::string& user, std::size_t value) {
        require_there(file, value < last_.size(), user, "the value " + std::to_string(value));
    };
    last_.assign(interface_.inputs.size(), kept);
    for (const Json& one : facts["calls"].array()) {
        const Facts call = Facts(file, one).only(
            {"name", "kind", "location", "layer", "function", "arrays", "operands", "seconds"});
        const std::string user = "call " + std::to_string(calls_.size());
        Call found{call["name"].string(),
                   call["kind"].string(),
                   call["location"].string(),
                   call.has("layer") ? std::optional<int>(call.level("layer")) : std::nullopt,
                   call["function"].string(),
                   {},
                   {},
                   call["seconds"].real()};
        require_there(file, functions.count(found.function) != 0, user,
                      "the function '" + found.function + "'");
        for (const Json& json : call["arrays"].array()) {
            const std::string& name = found.arrays.emplace_back(json.string());
            require_there(file, file.has(name) || publics.count(name) != 0, user,
                          "the array '" + name + "'");
        }
        for (const std::size_t operand : call.counts("operands")) {
            require_value(user, operand);
            last_[found.operands.emplace_back(operand)] = calls_.size();
        }
        calls_.push_back(std::move(found));
        last_.push_back(kept);
    }
    for (const Json& one : facts["outputs"].array()) {
        const Facts output(file, one);
        if (!output.has("value")) {
            refuse_program(file, "an output has no value");
        }
        const std::size_t value = outputs_.emplace_back(output.count("value"));
        require_value("the output '" + interface_.outputs[outputs_.size() - 1].name + "'", value);
        last_[value] = kept;
    }
    interface_.ops = calls_.size();
    for (const EncryptedInput& input : interface_.inputs) {
        require_there(file, input.prefix.empty() || file.has(input.prefix),
                      "the state '" + input.name + "'", "the array '" + input.prefix + "'");
    }
}

void StoredProgram::require_no_state() const {
    if (interface_.keeps_state()) {
        throw Error(file_ + " is the step or the prefill of a decoder",
                    "the keys and values of its tokens stay with the server",
                    "use atlasc answer, which keeps them");
    }
}

void StoredProgram::require_text(const std::string& sha256) const {
    if (text_ != sha256) {
        throw Error(file_ + " is of another program than the compiled calls",
                    "its text has the SHA-256 " + text_ + ", and theirs has " + sha256,
                    "give the file that lies beside them, or emit the program again and build it");
    }
}

Values StoredProgram::execute(Context& context, Values inputs) const {
    std::vector<Ciphertexts> values;
    for (const EncryptedInput& input : interface_.inputs) {
        values.push_back(std::move(inputs.at(input.name)));
    }
    for (std::size_t number = 0; number < calls_.size(); ++number) {
        const Call& call = calls_[number];
        context.at(call.place.c_str());
        std::vector<Ciphertexts> given;
        for (const std::size_t operand : call.operands) {
            given.push_back(values[operand]);
        }
        for (const std::size_t operand : call.operands) {
            if (last_[operand] == number) {
                values[operand] = {};
            }
        }
        values.push_back(context.play(call.function, call.arrays, std::move(given)));
    }
    Values results;
    for (std::size_t at = 0; at < outputs_.size(); ++at) {
        results.emplace(interface_.outputs[at].name, values[outputs_[at]]);
    }
    return results;
}

}  // namespace atlasc
