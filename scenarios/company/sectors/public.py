"""Sectors that serve people: health, public, education, housing."""

from scenarios.company.sectors.sector import build_sector

SECTORS = (
    build_sector(
        "health",
        "Saint Mira Hospital, Lakeside Clinics, Elm Ward Trust",
        "{company} runs hospitals. The patient record system is out of support, and the health "
        "office grants no further extension.",
        options=(
            "regional record platform, record suite in the own data centre, hosted record service, "
            "open record system, records of the university hospital"
        ),
        components=(
            "record store, admission desk, image archive, lab interface, prescription check, ward "
            "terminal, consent service, alarm relay"
        ),
        people="Amira, Bastian, Chiara, David, Edda",
        packages=(
            "record transfer, ward round trial, lab connection, prescription rules, nurse training, "
            "image import, consent forms, night switch"
        ),
        assets="patient files, lab results, drug cabinet, image archive, staff rota",
        controls=(
            "shared ward login: badge login, ransom mail: mail quarantine, open lab port: lab "
            "firewall, wrong patient match: double match, lost tablet: tablet lock, forged "
            "prescription: signature check, old image viewer: viewer isolation, curious colleague: "
            "access review, failed generator: second generator"
        ),
        items=(
            "record licences, image storage, device rental, interpreter service, courier runs, blood fridge"
        ),
    ),
    build_sector(
        "public",
        "City of Arnfeld, County of Weir, Harlow District",
        "{company} must offer its permits online by law. The present portal cannot take payments "
        "or signatures.",
        options=(
            "portal of the federal state, own citizen portal, portal shared with neighbours, permit "
            "suite of a vendor, portal of the postal service"
        ),
        components=(
            "citizen login, form server, fee cashier, signature service, permit register, case desk, "
            "post outlet, map viewer"
        ),
        people="Frieda, Goran, Heike, Ivo, Jasmin",
        packages=(
            "form design, fee tables, register cleansing, signature approval, desk training, pilot "
            "office, council vote, opening day"
        ),
        assets="resident register, fee account, building files, ballot rolls, personnel files",
        controls=(
            "forged identity: video ident, fake fee letter: letter codes, reused password: login "
            "codes, open form upload: upload scan, leaked register export: export approval, stolen "
            "laptop: disk encryption, clerk error: four eyes rule, portal overload: queue page, "
            "flooded cellar: second server room"
        ),
        items="form licences, postage, scanning service, kiosk rental, hotline seats, data lines",
    ),
    build_sector(
        "education",
        "Westmoor University, Lyceum Group, Saltford College",
        "{company} teaches forty thousand students. The learning platform broke down in three "
        "exam weeks, and the senate asks for another.",
        options=(
            "hosted learning suite, open platform on own servers, platform of the university network, "
            "suite of a publisher, modular platform of a start-up"
        ),
        components=(
            "course catalogue, video stream, exam server, grade book, login portal, plagiarism check, "
            "seminar room, library link"
        ),
        people="Kaya, Lorenz, Maya, Nils, Olga",
        packages=(
            "course export, exam rehearsal, lecturer training, grade transfer, video upload, "
            "accessibility review, timetable link, term start"
        ),
        assets="exam papers, grade records, student addresses, research drafts, scholarship fund",
        controls=(
            "shared exam link: exam tokens, guessed login: login codes, copied paper: paper vault, "
            "altered grade: grade audit, fake scholarship mail: mail stamp, old lab server: lab "
            "isolation, leaked recording: recording rights, impersonated student: photo check, power "
            "cut in exams: backup battery"
        ),
        items="video hours, platform seats, tutor hours, library access, exam rooms, caption service",
    ),
    build_sector(
        "housing",
        "Brickfield Homes, Union Housing, Parkview Estates",
        "{company} lets thirty thousand flats. The law asks for monthly heating data per flat, "
        "and today's meters are read once a year.",
        options=(
            "radio meters with hosted readout, meters of the heating supplier, own readout network, "
            "metering contract of the association, readout by the caretakers"
        ),
        components=(
            "meter gateway, readout server, tenant portal, billing engine, alarm desk, map of flats, "
            "letter outlet, consent store"
        ),
        people="Pavel, Ria, Simon, Thea, Uwe",
        packages=(
            "meter tender, stairwell survey, meter fitting, gateway fitting, tenant letters, billing "
            "trial, caretaker training, first readout"
        ),
        assets="tenant data, heating controls, billing account, door keys, contractor files",
        controls=(
            "open radio link: radio encryption, cloned key card: key card check, fake caretaker: "
            "visit codes, stolen readout laptop: laptop lock, billing fraud: bill sampling, weak "
            "gateway password: gateway keys, frozen pipes: frost sensors, leaked tenant list: list "
            "masking, vandalised gateway: steel boxes"
        ),
        items="radio meters, data plan, fitting hours, letter service, spare batteries, help desk",
    ),
)
