#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/ledger.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

/// The client's engine, in a process that leaves no core dump of its key.
std::unique_ptr<Engine> guarded_engine(const Interface& interface, const std::string& key) {
    require_closed(interface);
    forbid_core_dumps();
    return built_backend().client_engine(interface, key);
}

}  // namespace

std::string budget_text(std::size_t refusals) {
    return "these keys refused " + std::to_string(refusals) + " answers; after " +
           std::to_string(Ledger::most_refusals) + " they are not used any more";
}

void make_keys(const Interface& interface, const std::string& folder) {
    require_closed(interface);
    forbid_core_dumps();
    Draft draft(folder, Draft::Kind::folder, Access::secret);
    const std::string secret = draft.place() + "/secret.key";
    try {
        built_backend().generate_keys(interface, {secret, draft.place() + "/evaluation.key"}, {});
        const Ledger none(draft.place());
    } catch (Error& error) {
        error.where = folder;
        throw;
    }
    draft.publish();
}

Message encrypted(Packed inputs, const Interface& interface, Engine& engine) {
    Message query{{}, std::move(inputs.publics), inputs.count, random_identity()};
    for (const EncryptedInput& input : interface.inputs) {
        for (const Vector& slots : inputs.slots.at(input.name)) {
            query.values[input.name].push_back(engine.encrypt(slots, input.level));
        }
    }
    return query;
}

NamedSlots decrypted(const Message& answer, const Interface& interface, Engine& engine) {
    NamedSlots slots;
    for (const Output& output : interface.outputs) {
        for (const Ciphertext& part : answer.values.at(output.name)) {
            slots[output.name].push_back(engine.decrypt(part));
        }
    }
    return slots;
}

Answers decrypt_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                       const LoadAnswer& load) {
    ledger.check(answer);
    const Decrypt decrypt = load();  // needs no secret key: what cannot be loaded spends nothing
    ledger.answer(answer);
    try {
        Answers found = answers(interface, decrypt(), answer.count);
        if (!found.refused.empty()) {
            ledger.refuse(answer);
        }
        return found;
    } catch (Error& error) {  // it decrypts to nothing
        ledger.refuse(answer);
        error.why += (error.why.empty() ? "" : "; ") + budget_text(ledger.refusals());
        throw;
    }
}

SharedAnswers share_answer(Ledger& ledger, const Ledger::Entry& answer, const Interface& interface,
                           const LoadAnswer& load, const Sharing& sharing) {
    const Floods floods = require_digits(interface, answer.count, sharing);
    const int bits = static_cast<int>(sharing.bits);  // those of absurdly many leave no digit
    const auto shares = static_cast<std::size_t>(sharing.shares);
    ledger.require_shareable(answer, bits, shares);
    Answers exact = decrypt_answer(ledger, answer, interface, load);
    if (!exact.refused.empty()) {
        return {{{}, std::move(exact.refused)}, {}, 0};
    }
    const std::size_t number = ledger.share(answer, bits, shares);
    return {{flooded(std::move(exact.outputs), floods), {}}, floods, number};
}

Client::Client(Interface interface, const std::string& key)
    : interface_(std::move(interface)),
      folder_(folder_of(key)),
      engine_(guarded_engine(interface_, key)) {}

Client::Query Client::encrypt(const Tensors& inputs, bool unchecked, const std::string& doubt) {
    Packed ready = packed(interface_, inputs, unchecked);
    const std::string seen = ready.doubt;
    const Message query = encrypted(std::move(ready), interface_, *engine_);
    Ledger(folder_).add({query.query, interface_.identity, query.count},
                        doubt.empty() ? seen : doubt);
    return {message_writer(interface_, serialized(query, "query", interface_, *engine_)).sealed(), seen};
}

Client::Received Client::received(PlainFile answer) {
    const CiphertextBytes most = saved_bytes(*engine_);
    // Read once: the ledger has the digest of the very bytes that are decrypted.
    answer.hold(message_bytes(interface_, most));
    SerializedMessage read = read_message(TensorFile(std::move(answer)), "answer", interface_, most);
    const Ledger::Entry entry{read.query, interface_.identity, read.count, read.digest};
    return {entry, [this, read = std::move(read)]() mutable -> Decrypt {
                return [this, message = deserialized(std::move(read), interface_, *engine_)] {
                    return decrypted(message, interface_, *engine_);
                };
            }};
}

Answers Client::decrypt(PlainFile answer) {
    const Received given = received(std::move(answer));
    Ledger ledger(folder_);
    return decrypt_answer(ledger, given.entry, interface_, given.load);
}

SharedAnswers Client::share(PlainFile answer, const Sharing& sharing) {
    const Received given = received(std::move(answer));
    Ledger ledger(folder_);
    return share_answer(ledger, given.entry, interface_, given.load, sharing);
}

std::size_t Client::refusals() const { return Ledger(folder_).refusals(); }

}  // namespace atlasc
