// What a client did with its key: the file `ledger.jsonl` beside its secret key.
//
// A server can send anything back. With the ledger a client accepts one answer to each of its own
// queries, and no other. A server that sends what it likes learns one bit from each answer: whether the
// client showed it or refused it. So a key has a budget of refused answers, after which it is not used
// any more (docs/security.md).
//
// A JSON object a line, to which more are only ever added:
//     {"event": "query", "query": ID, "program": ID, "count": N, "doubt": WHY}   by encrypt
//     {"event": "answer", ..., "answer": SHA256}    by decrypt, before anything is decrypted
//     {"event": "refused", ..., "answer": SHA256}   by decrypt, before it says that it refuses
//     {"event": "share", ..., "answer": SHA256, "spent": S}   before its numbers are passed on
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/base/files.hpp"

namespace atlasc {

class Ledger {
public:
    /// Refused answers after which a key is not used any more.
    static constexpr std::size_t most_refusals = 16;

    /// Most characters of the reason for a doubt.
    static constexpr std::size_t most_doubt = 400;

    /// A query, or the answer to it.
    struct Entry {
        std::string query;
        std::string program;
        std::size_t count = 0;
        std::string answer{};  ///< digest of the answer; empty of a query
    };

    /// The ledger in the folder of a secret key; a new file where there is none. Locked as long as this
    /// lives. Throws Error: the file is damaged, or others may read it.
    explicit Ledger(const std::string& folder);

    /// A query; on the disk when this returns. `doubt`: why the bound on the errors may not hold for
    /// its answer; empty where the client knows of no reason, nothing where it did not look. Throws
    /// Error: the key is used up.
    void add(const Entry& query, const std::optional<std::string>& doubt);

    /// Throws Error for an answer to none of the queries, of another program or count, or, after a
    /// first one, of another digest; or for a new one when the key is used up.
    void check(const Entry& answer) const;

    /// As `check`, before an answer is decrypted, and remembers it: what a server learns from the
    /// answer, it then learns once.
    void answer(const Entry& answer);

    /// An answer that was decrypted is none; noted once, before anything is said of it.
    void refuse(const Entry& answer);

    std::size_t refusals() const { return refusals_; }

    /// Throws Error for what `share` would refuse; for before anything is decrypted.
    void require_shareable(const Entry& answer, int bits, std::size_t shares) const;

    /// Notes that the numbers of an answer leave the client, before they are shown, and counts the
    /// answers that were shared, this one included. One that is shared at kappa `bits` as one of tau
    /// `shares` spends 2^-kappa / tau, in proportion to the divergence that its noise allows; all of a
    /// key's may spend 2^-kappa. Throws Error: as `check`; the bound on the errors may not hold for the
    /// query, or the answer was refused; the budget is spent.
    std::size_t share(const Entry& answer, int bits, std::size_t shares);

private:
    struct Asked {
        Entry entry;  ///< with the digest of the first answer
        std::optional<std::string> doubt{};
        bool refused = false;
    };

    void read();
    bool read_line(const std::string& line);
    const Asked& expected(const Entry& answer) const;
    void require_usable() const;
    void append(const std::string& event, const Entry& entry, const std::string& more = "");

    std::string path_;
    Descriptor file_;
    std::map<std::string, Asked> asked_;
    std::size_t refusals_ = 0;
    std::vector<double> spent_;  ///< by the shared answers
};

}  // namespace atlasc
