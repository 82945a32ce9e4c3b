#include <algorithm>
#include <cmath>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/queries.hpp"
#include "atlasc/roles.hpp"
#include "client_tensors.hpp"

namespace atlasc {
namespace {

[[noreturn]] void refuse(const Outside& outside) {
    const double share = 100.0 * static_cast<double>(outside.elements) /
                         static_cast<double>(outside.of);
    Error error("the answer is outside the range of the calibration",
                std::to_string(outside.elements) + " of " + std::to_string(outside.of) +
                    " numbers (" + std::to_string(std::max(std::lround(share), 1L)) + "%), in " +
                    rows_text(outside.rows),
                "the inputs are unlike those of the calibration, or the server computed something "
                "else; the option --unchecked writes the answer all the same");
    error.exit_code = Error::outside_range;
    throw error;
}

}  // namespace

void make_keys(const Interface& interface, const std::string& folder) {
    Draft draft(folder, Draft::Kind::folder, Access::secret);
    const std::string secret = draft.place() + "/secret.key";
    try {
        backend::generate_keys(interface, secret, draft.place() + "/evaluation.key");
        const Queries none(secret);
    } catch (Error& error) {
        error.where = folder;
        throw;
    }
    draft.publish();
}

Client::Client(const Interface& interface, const std::string& key)
    : interface_(interface), engine_(backend::client_engine(interface, key)) {}

Message Client::encrypt(const std::map<std::string, Tensor>& inputs,
                        const std::string& source) const {
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
        tensors.push_back(prepared(std::move(tensor), input, source, query.count));
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

std::map<std::string, Tensor> Client::decrypt(const Message& answer, bool unchecked) const {
    std::map<std::string, Tensor> result;
    Outside outside;
    for (const Output& output : interface_.outputs) {
        std::vector<Vector> slots;
        for (const Ciphertext& part : answer.values.at(output.name)) {
            slots.push_back(engine_->decrypt(part));
        }
        result[output.name] =
            answer_of(slots, output, std::min(answer.count, output.shape[0]), outside);
    }
    if (outside.elements > 0 && !unchecked) {
        refuse(outside);
    }
    return result;
}

}  // namespace atlasc
