#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

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

Client::Query Client::encrypt(const Tensors& inputs, bool unchecked) const {
    Packed ready = packed(interface_, inputs, unchecked);
    Query query{{{}, std::move(ready.publics), ready.count, random_identity()}, ready.doubt};
    for (const EncryptedInput& input : interface_.inputs) {
        for (const Vector& slots : ready.slots.at(input.name)) {
            query.message.values[input.name].push_back(engine_->encrypt(slots, input.level));
        }
    }
    return query;
}

Answers Client::decrypt(const Message& answer) const {
    NamedSlots slots;
    for (const Output& output : interface_.outputs) {
        for (const Ciphertext& part : answer.values.at(output.name)) {
            slots[output.name].push_back(engine_->decrypt(part));
        }
    }
    return answers(interface_, slots, answer.count);
}

}  // namespace atlasc
