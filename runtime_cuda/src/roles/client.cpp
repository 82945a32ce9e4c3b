#include <algorithm>
#include <cmath>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/roles.hpp"
#include "client_tensors.hpp"

namespace atlasc {
namespace {

[[noreturn]] void refuse(const Outside& outside) {
    const double share = 100.0 * static_cast<double>(outside.elements) /
                         static_cast<double>(outside.of);
    Error error("the answer is outside the range of the calibration, or copies in it differ",
                std::to_string(outside.elements) + " of " + std::to_string(outside.of) +
                    " numbers (" + std::to_string(std::max(std::lround(share), 1L)) + "%), in " +
                    rows_text(outside.rows),
                "the inputs are unlike those of the calibration, or the server computed something "
                "else; the option --unchecked writes the answer all the same. Do not tell the "
                "server");
    error.exit_code = Error::outside_range;
    throw error;
}

/// The client's engine, in a process that leaves no core dump of its key.
std::unique_ptr<Engine> guarded_engine(const Interface& interface, const std::string& key) {
    forbid_core_dumps();
    return built_backend().client_engine(interface, key);
}

}  // namespace

void make_keys(const Interface& interface, const std::string& folder) {
    forbid_core_dumps();
    Draft draft(folder, Draft::Kind::folder, Access::secret);
    const std::string secret = draft.place() + "/secret.key";
    try {
        built_backend().generate_keys(interface, secret, draft.place() + "/evaluation.key", {});
        const Ledger none(draft.place());
    } catch (Error& error) {
        error.where = folder;
        throw;
    }
    draft.publish();
}

Client::Client(const Interface& interface, const std::string& key)
    : interface_(interface), engine_(guarded_engine(interface, key)) {}

Message Client::encrypt(const std::map<std::string, Tensor>& inputs, const std::string& source,
                        bool unchecked) const {
    Message query{{}, {}, 0, random_identity()};
    const auto given = [&](const std::string& name, const std::vector<std::size_t>& shape) {
        const auto found = inputs.find(name);
        if (found == inputs.end()) {
            throw Error("the input " + name + " is missing", "", "make it with atlasc embed");
        }
        return whole_batch(found->second, name, source, shape, query.count);
    };
    std::vector<Tensor> tensors;
    for (const EncryptedInput& input : interface_.inputs) {
        Tensor tensor = given(input.name, input.shape);  // sets the count
        tensors.push_back(
            prepared(std::move(tensor), input, source, query.count, unchecked, query.doubt));
    }
    for (const PublicInput& input : interface_.publics) {
        Tensor& mask = query.publics[input.name] = given(input.name, input.shape);
        require_mask(mask, input.name, source);
    }
    for (std::size_t at = 0; at < tensors.size(); ++at) {
        const EncryptedInput& input = interface_.inputs[at];
        for (const Vector& slots : packed_slots(tensors[at], input)) {
            query.values[input.name].push_back(engine_->encrypt(slots, input.level));
        }
    }
    return query;
}

std::map<std::string, Tensor> Client::decrypt(const Message& answer, bool unchecked,
                                              const std::function<void()>& refused) const {
    std::map<std::string, Tensor> result;
    Outside outside;
    const auto note = [&refused] {
        if (refused) {
            refused();
        }
    };
    try {
        for (const Output& output : interface_.outputs) {
            std::vector<Vector> slots;
            for (const Ciphertext& part : answer.values.at(output.name)) {
                slots.push_back(engine_->decrypt(part));
            }
            result[output.name] =
                answer_of(slots, output, std::min(answer.count, output.shape[0]), outside);
        }
    } catch (const Error&) {  // it decrypts to nothing
        note();
        throw;
    }
    if (outside.elements > 0) {
        note();
        if (!unchecked) {
            refuse(outside);
        }
    }
    return result;
}

}  // namespace atlasc
