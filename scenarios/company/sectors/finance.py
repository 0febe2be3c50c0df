"""Sectors that move money: bank, insurance, retail, travel."""

from scenarios.company.sectors.sector import build_sector

SECTORS = (
    build_sector(
        "bank",
        "Northbank, Alder Savings, Harbour Credit",
        "{company} is a bank. Vendor support for its card-payment switch ends in fourteen months, "
        "and the switch must be replaced.",
        options=(
            "hosted switch of the card network, switch on the own platform, shared switch of three "
            "banks, licensed switch in the own data centre, payment service of a cloud vendor"
        ),
        components=(
            "card gateway, fraud scorer, authorisation engine, ledger node, limit check, message bus, "
            "settlement queue, key store"
        ),
        people="Anna, Ben, Carla, Deniz, Emil",
        packages=(
            "interface design, ledger migration, card scheme certification, fraud rules, key "
            "ceremony, parallel run, cut-over, staff training"
        ),
        assets="card numbers, ledger entries, settlement file, customer accounts, signing keys",
        controls=(
            "phishing mail: mail filter, stolen password: security keys, unpatched gateway: patch "
            "service, open partner link: link gateway, insider query: query alerts, weak encryption: "
            "tokenisation, forged transfer: fraud scoring, lost backup: sealed backups, rogue device: "
            "device check"
        ),
        items="storage, support hours, network lines, key vault service, test cards, monitoring",
    ),
    build_sector(
        "insurance",
        "Fairhaven Mutual, Oakline Insurance, Castle Cover",
        "{company} is an insurer. Storm claims have doubled in two years, and the old claims "
        "system can no longer keep up.",
        options=(
            "claims suite of the market leader, rebuilt claims desk, joint claims centre, claims "
            "platform of a reinsurer, outsourced claims handling"
        ),
        components=(
            "claim intake, document reader, policy lookup, damage estimator, payout engine, letter "
            "printer, case archive, broker portal"
        ),
        people="Farid, Grete, Hana, Igor, Julia",
        packages=(
            "policy cleansing, claim forms, estimator training, payout rules, broker pilot, archive "
            "transfer, audit review, switch of lines"
        ),
        assets="health files, payout account, policy archive, broker contracts, reserve model",
        controls=(
            "faked invoice: invoice matching, stolen broker login: broker tokens, leaked scan: scan "
            "masking, tampered estimate: second estimate, mailbox takeover: mailbox guard, exposed "
            "archive: archive lock, bribed assessor: assessor rotation, wrong bank details: call back "
            "rule, malware in upload: upload scan"
        ),
        items=(
            "assessor visits, scan service, letter printing, weather data, archive space, call centre seats"
        ),
    ),
    build_sector(
        "retail",
        "Brightmart, Corner and Field, Lindens",
        "{company} is a retailer. Its web shop failed twice in the last holiday season and needs "
        "a new base before the next one.",
        options=(
            "shop platform as a service, own shop on open source, marketplace storefront, shop suite "
            "of the till vendor, shared shop of the buying group"
        ),
        components=(
            "storefront, search index, basket service, price engine, stock lookup, checkout, voucher "
            "service, image server"
        ),
        people="Kofi, Lena, Mario, Nadia, Oskar",
        packages=(
            "catalogue import, payment contract, stock interface, voucher rules, load test, store "
            "pickup, returns desk, launch week"
        ),
        assets="customer addresses, card tokens, price list, voucher codes, supplier terms",
        controls=(
            "bot traffic: bot filter, guessed voucher: voucher limits, stolen cookie: short sessions, "
            "script in a shop page: script allow list, supplier breach: supplier audit, fake refund: "
            "refund review, stolen till login: till badges, scraped prices: rate limit, lost parcel "
            "scan: parcel seals"
        ),
        items=("cloud servers, search licences, payment fees, parcel labels, photo studio, customer hotline"),
    ),
    build_sector(
        "travel",
        "Meridian Tours, Blue Atlas, Stayfinder",
        "{company} sells holidays. Its booking partner closes the interface that two thirds of "
        "the bookings come through.",
        options=(
            "booking hub of an alliance, direct contracts with hotels, global distribution system, "
            "white label booking site, own booking engine"
        ),
        components=(
            "offer search, fare cache, seat broker, hotel link, payment page, itinerary store, mail "
            "sender, rebooking desk"
        ),
        people="Paula, Quentin, Rosa, Stefan, Tara",
        packages=(
            "hotel contracts, fare mapping, seat interface, payment test, agent training, rebooking "
            "rules, language pages, season start"
        ),
        assets="passport scans, booking records, loyalty points, agent accounts, deposit account",
        controls=(
            "cloned booking site: brand watch, stolen agent login: agent tokens, point theft: point "
            "alerts, fake hotel: hotel checks, leaked passport scan: scan deletion, chargeback wave: "
            "deposit rule, fare scraping: fare throttle, insolvent partner: partner insurance, "
            "overbooked season: seat reserve"
        ),
        items="seat quotas, room quotas, map service, translation, call minutes, travel insurance",
    ),
)
