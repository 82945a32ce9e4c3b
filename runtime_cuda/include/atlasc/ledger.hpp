// What a client did with its key: the file `ledger.jsonl` beside its secret key, which the Python
// client (atlasc/bundle/ledger.py) keeps in the same format.
//
// A JSON object a line, to which more are only ever added:
//     {"event": "query", "query": ID, "program": ID, "count": N, "doubt": WHY}   by encrypt
//     {"event": "answer", ..., "answer": SHA256}    by decrypt, before anything is decrypted
//     {"event": "refused", ..., "answer": SHA256}   by decrypt, before it says that it refuses
//     {"event": "share", ..., "spent": S}           by atlasc decrypt --share
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "atlasc/files.hpp"

namespace atlasc {

class Ledger {
public:
    /// Refused answers after which a key is not used any more; as in ledger.py.
    static constexpr std::size_t most_refusals = 16;

    /// A query, or the answer to it.
    struct Entry {
        std::string query;
        std::string program;
        std::size_t count = 0;
        std::string answer{};  ///< digest of the answer; empty of a query
    };

    /// The ledger of a secret key; a new file where there is none. Locked as long as this lives.
    /// Throws Error: the file is damaged, or others may read it.
    explicit Ledger(const std::string& key);

    /// A query; on the disk when this returns. `doubt`: why the bound on the errors may not hold for
    /// its answer; empty where the client knows of no reason. Throws Error: the key is used up.
    void add(const Entry& query, const std::string& doubt);

    /// Refuse (Error) an answer to none of the queries, of another program or count, or, after a
    /// first one, of another digest; or a new one when the key is used up. Remembers it.
    void answer(const Entry& answer);

    /// An answer that was decrypted is none; noted once.
    void refuse(const Entry& answer);

    std::size_t refusals() const { return refusals_; }

private:
    struct Asked {
        Entry entry;
        bool refused = false;
    };

    void read();
    bool read_line(const std::string& line);
    void require_usable() const;
    void append(const std::string& event, const Entry& entry, const std::string& more);

    std::string path_;
    Descriptor file_;
    std::map<std::string, Asked> asked_;
    std::size_t refusals_ = 0;
};

}  // namespace atlasc
