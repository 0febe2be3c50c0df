"""Sectors that move goods and news: freight, aviation, media, agriculture."""

from scenarios.company.sectors.sector import build_sector

SECTORS = (
    build_sector(
        "freight",
        "Overland Freight, Quayside Logistics, Swift Haulage",
        "{company} hauls parcels and pallets. Its tracking system loses one parcel in two "
        "hundred, and two large shippers threaten to leave.",
        options=(
            "tracking suite of the alliance, own tracking app, hosted tracking service, tracking by "
            "the truck maker, radio tags in depots"
        ),
        components=(
            "depot scanner, route planner, driver app, parcel store, customer tracking page, dock "
            "display, customs link, toll feed"
        ),
        people="Abel, Bianca, Carsten, Dilara, Enzo",
        packages=(
            "depot survey, scanner rollout, driver training, label change, shipper interface, night "
            "sort trial, customs test, full season"
        ),
        assets="parcel stock, shipper data, customs bond, driver phones, fuel cards",
        controls=(
            "fake pickup: pickup codes, stolen fuel card: card limits, unlocked trailer: trailer "
            "locks, phished dispatcher: dispatcher keys, label swap: label check, open depot network: "
            "depot firewall, forged customs paper: paper seals, engine failure: spare truck, insider "
            "theft: dock cameras"
        ),
        items="scanners, pallet pool, truck leases, toll volume, label stock, mobile data",
    ),
    build_sector(
        "aviation",
        "Skylark Air, Polar Wings, Aeris Regional",
        "{company} flies regional routes. Its crew planning system breaks the new rest rules, and "
        "fines are due from spring.",
        options=(
            "crew suite of the market leader, planning by an alliance partner, hosted crew planner, "
            "own planner on solver software, extension of the old system"
        ),
        components=(
            "roster engine, rest rule checker, crew app, flight feed, standby desk, hotel link, "
            "training records, gate display"
        ),
        people="Femke, Giulio, Hilde, Ines, Jarl",
        packages=(
            "rule catalogue, roster import, crew app trial, union talks, standby rules, planner "
            "training, shadow month, summer roster"
        ),
        assets="crew records, flight plans, maintenance logs, passenger lists, fuel contracts",
        controls=(
            "leaked crew list: list masking, forged training record: record signing, phished planner: "
            "planner keys, overslept alarm: wake up calls, winter storm: de-icing slots, broken gate "
            "system: spare display, false bomb call: call tracing, tampered log: log sealing, strike "
            "day: reserve crews"
        ),
        items=("crew app seats, hotel rooms, de-icing fluid, simulator hours, ground handling, flight data"),
    ),
    build_sector(
        "media",
        "Channel Nine North, Lumen Press, Polyphon",
        "{company} publishes news and films. Its streaming licence vendor was sold, and prices "
        "triple at renewal.",
        options=(
            "streaming platform as a service, own streaming stack, joint platform of broadcasters, "
            "platform of a telecom carrier, licence renewal with cuts"
        ),
        components=(
            "ingest node, video encoder, content store, recommender, player service, advert server, "
            "rights check, subtitle engine"
        ),
        people="Kasimir, Leila, Moritz, Nele, Oona",
        packages=(
            "rights review, content transfer, player rebuild, advert contract, subtitle import, load "
            "rehearsal, app approval, subscriber move"
        ),
        assets="unreleased films, subscriber data, source files, advert revenue, archive tapes",
        controls=(
            "leaked screener: screener marks, shared password: device limits, fake advert: advert "
            "review, source exposure: sealed inbox, hijacked channel: channel keys, pirate stream: "
            "stream marks, overheated encoder: spare cooling, studio burglary: studio alarm, forged "
            "press mail: mail stamp"
        ),
        items="delivery traffic, encoder hours, rights fees, subtitle hours, studio days, music library",
    ),
    build_sector(
        "agriculture",
        "Goldfield Farms, Terra Growers, Riverbend Cooperative",
        "{company} grows vegetables for three countries. New rules ask for proof of water and "
        "fertiliser use on every field.",
        options=(
            "field sensors with hosted analysis, satellite service, records by the machine maker, "
            "cooperative data platform, own field book on open software"
        ),
        components=(
            "soil sensor hub, weather mast, tractor link, irrigation control, field book, harvest "
            "scale, buyer portal, map server"
        ),
        people="Piet, Ronja, Sanna, Tibor, Vera",
        packages=(
            "field survey, mast building, sensor fitting, tractor retrofit, record templates, farm "
            "training, inspector visit, sowing start"
        ),
        assets="irrigation pumps, harvest contracts, field records, fertiliser store, seasonal payroll",
        controls=(
            "open pump control: pump keys, late frost: frost fans, stolen tractor link: tractor "
            "locks, false spray record: spray audit, pest outbreak: trap network, fake buyer: buyer "
            "checks, dry well: water reserve, broken cold store: cold alarms, flooded lower field: "
            "drain pumps"
        ),
        items="sensor leases, satellite images, drip lines, seed lots, diesel, lab tests",
    ),
)
