"""Sectors that make things: manufacturing, pharma, food, construction."""

from scenarios.company.sectors.sector import build_sector

SECTORS = (
    build_sector(
        "manufacturing",
        "Kestrel Motors, Precision Works, Ironbridge Tools",
        "{company} builds gear boxes. Its largest customer wants every part traced from the "
        "casting on, from next year's contract.",
        options=(
            "tracing suite of the machine maker, own tracing on the shop floor, tracing service in "
            "the cloud, tracing module of the planning system, marking by the foundry"
        ),
        components=(
            "line scanner, part database, machine gateway, label printer, quality station, planning "
            "link, customer feed, rework desk"
        ),
        people="Adem, Bruna, Clemens, Darya, Eskil",
        packages=(
            "scanner trial, machine retrofit, label design, data model, shift training, customer "
            "audit, rework process, serial start"
        ),
        assets="machine controls, part records, design drawings, customer feed, spare parts store",
        controls=(
            "infected usb stick: usb locks, open machine port: line firewall, swapped label: label "
            "check, stolen drawing: drawing rights, phished planner: planner keys, tool breakage: "
            "tool sensors, supplier malware: supplier gateway, server room fire: gas extinguisher, "
            "wrong part record: record audit"
        ),
        items="scanners, label stock, software seats, service visits, machine hours, steel surcharge",
    ),
    build_sector(
        "pharma",
        "Halden Pharma, Curalis, Birch Laboratories",
        "{company} makes vaccines. The inspector found gaps in the batch records and wants them "
        "closed before the next licence.",
        options=(
            "electronic batch record suite, extension of the lab system, hosted record service, "
            "records by the contract maker, stepwise paper replacement"
        ),
        components=(
            "batch recorder, lab system, cold room sensor, release desk, label verifier, audit trail, "
            "supplier portal, archive vault"
        ),
        people="Farah, Gabor, Henrike, Ilja, Jonna",
        packages=(
            "record templates, sensor calibration, lab interface, validation run, operator training, "
            "supplier audit, mock inspection, first batch"
        ),
        assets="batch records, cold room, trial data, recipe files, release signatures",
        controls=(
            "altered record: audit trail lock, failed cooler: backup cooler, shared operator login: "
            "operator badges, leaked trial data: trial masking, counterfeit supplier: supplier seals, "
            "recipe theft: recipe vault, mixed up label: label camera, contaminated batch: extra "
            "sampling, lost sensor signal: sensor relay"
        ),
        items="vials, lab reagents, cold transport, validation days, sensor leases, archive space",
    ),
    build_sector(
        "food",
        "Greenacre Foods, Mill and Dairy, Southfield Bakers",
        "{company} makes chilled meals. Two supermarkets ask for recall of any batch within an hour.",
        options=(
            "batch tracking suite, tracking by the packaging maker, own tracking on open software, "
            "tracking service of the retailers, paper tracking with scanners"
        ),
        components=(
            "goods inward scanner, recipe server, oven monitor, packing line, chill chain logger, "
            "batch store, retailer link, recall desk"
        ),
        people="Kirsti, Luca, Mirela, Noah, Ottilie",
        packages=(
            "supplier codes, scanner fitting, recipe import, packing trial, recall drill, hygiene "
            "audit, shift training, retailer approval"
        ),
        assets="recipes, chilled stock, batch records, brand name, supplier contracts",
        controls=(
            "broken chill chain: chill alarms, foreign body: metal detector, wrong allergen label: "
            "label scan, fake supplier paper: supplier tests, stolen recipe: recipe rights, "
            "ransomware in packing: line isolation, pest in store: pest control, spoiled raw milk: "
            "milk sampling, faked online review: review watch"
        ),
        items="packaging film, scanners, cold storage, lab swabs, pallet pool, cleaning service",
    ),
    build_sector(
        "construction",
        "Stonegate Build, Harper and Sons, Tallis Construction",
        "{company} builds hospitals and schools. From next year public tenders ask for digital "
        "building models it cannot deliver yet.",
        options=(
            "model suite of the market leader, open model tools, model service of a planner, shared "
            "model office, suite of the crane maker"
        ),
        components=(
            "model server, clash checker, plan viewer, site tablet hub, cost link, document store, "
            "survey drone feed, approval desk"
        ),
        people="Pia, Rolf, Samira, Till, Ursel",
        packages=(
            "model standards, library of parts, pilot site, tablet rollout, clash rules, cost "
            "interface, planner training, first tender"
        ),
        assets="tender prices, building models, site cabin, crane controls, wage data",
        controls=(
            "leaked tender: tender vault, stolen tablet: tablet lock, wrong plan version: version "
            "stamp, forged delivery note: delivery photos, site theft: site cameras, unsafe scaffold: "
            "scaffold inspection, phished buyer: buyer keys, subcontractor default: default bond, "
            "hacked crane remote: remote pairing"
        ),
        items="model licences, tablets, survey days, printing, cloud space, crane data",
    ),
)
